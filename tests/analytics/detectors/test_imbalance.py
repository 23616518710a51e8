from __future__ import annotations

import pytest

from analytics.detectors.imbalance import Imbalance
from tests.analytics.detectors.grid import job


def test_names_the_heavy_last_stage_and_no_machine() -> None:
    (finding,) = Imbalance().detect(job(dp=2, pp=4, stages=(1.0, 1.0, 1.0, 1.35)))

    assert (finding.cause, finding.entity) == ("stage_partition", "stage:3")
    assert (finding.ranks, finding.nodes, finding.evict) == ((), (), False)
    assert finding.cost.slowdown > 1.1


def test_names_sequence_length_where_forward_and_backward_vary_together() -> None:
    (finding,) = Imbalance().detect(job(dp=16, pp=2, work=0.25))

    assert (finding.cause, finding.entity, finding.ranks) == ("sequence_length", "job", ())


@pytest.mark.parametrize("slow", [{}, {3: 1.5}])
def test_an_even_job_has_none_slow_rank_or_not(slow: dict[int, float]) -> None:
    assert Imbalance().detect(job(dp=8, pp=4, slow=slow)) == []


def test_a_slight_difference_between_stages_is_not_told() -> None:
    assert Imbalance().detect(job(dp=4, pp=4, stages=(1.0, 1.0, 1.0, 1.04))) == []


def test_a_single_rank_a_stage_cannot_be_told_from_a_slow_machine() -> None:
    assert Imbalance().detect(job(dp=1, pp=4, stages=(1.0, 1.0, 1.0, 1.6))) == []


def test_a_slow_rank_does_not_hide_what_a_heavy_stage_costs() -> None:
    # stage 1 of the slowest replica takes 1.45 times its time, so that it is as long a pole as the heavy stage
    window = job(dp=8, pp=4, stages=(1.0, 1.0, 1.0, 1.5), slow={9: 1.45})

    (finding,) = Imbalance().detect(window)

    assert (finding.cause, finding.entity) == ("stage_partition", "stage:3")
