from __future__ import annotations

import pytest

from analytics.detectors.slow_rank import SlowRank
from analytics.findings import spoken
from tests.analytics.detectors.grid import job


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ("rank:7", "rank 7"),
        ("node:gpu-7", "node gpu-7"),
        ("node:node-125", "node-125"),
        ("node:Node125", "Node125"),
        ("nic:node-1/mlx5_0", "nic node-1/mlx5_0"),
        ("job", "job"),
    ],
)
def test_an_entity_is_said_once(entity: str, words: str) -> None:
    assert spoken(entity) == words


def test_a_slow_node_is_named_as_people_say_it() -> None:
    (finding,) = SlowRank().detect(job(dp=16, pp=4, ranks_per_node=4, slow=dict.fromkeys(range(8, 12), 1.2)))

    assert finding.summary.startswith("node-2 (4 ranks) takes 20% longer than its 15 peers")
    assert "neighbours of node-2;" in finding.next
