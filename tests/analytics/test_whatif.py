from __future__ import annotations

import pytest

from analytics.whatif import WhatIf, replay
from collector.ingest.straggler_trace import read
from tests.analytics.shared_data import straggler_trace


@pytest.mark.parametrize(
    ("name", "slowdown", "worker_share", "last_stage_share"),
    [("AR", 1.973, 1.002, -0.001), ("SE", 1.537, 0.025, 0.688)],
)
def test_reproduces_the_published_figures(
    name: str, slowdown: float, worker_share: float, last_stage_share: float
) -> None:
    whatif = WhatIf.of(read(straggler_trace(name)))

    assert whatif is not None
    assert whatif.slowdown == pytest.approx(slowdown, abs=0.001)
    assert whatif.worker_share == pytest.approx(worker_share, abs=0.001)
    assert whatif.last_stage_share == pytest.approx(last_stage_share, abs=0.001)


def test_prices_the_slow_worker_as_published() -> None:
    whatif = WhatIf.of(read(straggler_trace("AR")))

    assert whatif is not None
    assert whatif.slowdown_by([0]) == pytest.approx(1.97, abs=0.02)


def test_replay_equals_a_naive_one_for_a_single_replica_and_step() -> None:
    whatif = WhatIf.of(read(straggler_trace("SE")))
    assert whatif is not None
    n_dp = whatif.work.shape[1]
    work = whatif.work[:, :, :1]

    def end_of(op: int, dp: int, ends: dict[tuple[int, int], float]) -> float:
        return ends[op, dp]

    ends: dict[tuple[int, int], float] = {}
    for node in whatif.graph.nodes:
        began = [
            max((end_of(w, dp, ends) for waits in node.waits_for for w in waits), default=0.0) for dp in range(n_dp)
        ]
        for dp in range(n_dp):
            for op in node.ops:
                ends[op, dp] = (max(began) if node.over_dp else began[dp]) + float(work[op, dp, 0])

    expected = max(ends[int(op), dp] for op in whatif.graph.last_ops for dp in range(n_dp))
    assert replay(whatif.graph, work)[0] == pytest.approx(expected)
