from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analytics.detectors.slow_rank import SlowRank
from analytics.window import Window
from tests.analytics.detectors.grid import job


def entities(window: Window) -> list[str]:
    return [finding.entity for finding in SlowRank().detect(window)]


@pytest.mark.parametrize(("dp", "pp"), [(2, 4), (3, 2), (4, 4), (16, 2), (4, 1)])
@pytest.mark.parametrize("factor", [1.1, 1.3])
def test_names_exactly_the_slow_rank(dp: int, pp: int, factor: float) -> None:
    for index in {0, dp * pp // 2, dp * pp - 1}:
        found = SlowRank().detect(job(dp=dp, pp=pp, slow={index: factor}))

        assert [(f.entity, f.cause, f.ranks, f.evict) for f in found] == [(f"rank:{index}", "compute", (index,), False)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("work", [0.0, 0.25])
def test_names_nobody_in_a_healthy_job_whatever_its_stages_and_sequences(seed: int, work: float) -> None:
    assert entities(job(dp=8, pp=4, work=work, stages=(1.0, 1.0, 1.0, 1.4), seed=seed)) == []


def test_finds_ten_percent_under_varying_sequence_length() -> None:
    assert entities(job(dp=16, pp=2, n_steps=40, work=0.25, slow={5: 1.1})) == ["rank:5"]


def test_joins_the_ranks_of_one_node() -> None:
    window = job(dp=16, pp=4, ranks_per_node=4, slow=dict.fromkeys(range(8, 12), 1.2))

    found = SlowRank().detect(window)

    assert [(f.entity, f.ranks, f.nodes) for f in found] == [("node:node-2", (8, 9, 10, 11), ("node-2",))]


def test_names_separate_ranks_separately() -> None:
    assert sorted(entities(job(dp=8, pp=2, slow={3: 1.3, 10: 1.5}))) == ["rank:10", "rank:3"]


def test_names_two_ranks_of_one_role_that_are_slow_by_different_amounts() -> None:
    assert sorted(entities(job(dp=4, pp=1, slow={0: 2.3, 2: 1.15}))) == ["rank:0", "rank:2"]


def test_picks_none_of_equal_halves() -> None:
    assert entities(job(dp=4, pp=1, slow={0: 1.3, 1: 1.3})) == []


def test_a_burst_is_not_persistent() -> None:
    window = job(dp=8, pp=1, n_steps=40)
    window.seconds["forward"][3, 10:16] *= 3

    assert entities(window) == []


def test_says_since_when() -> None:
    window = job(dp=8, pp=1, n_steps=40)
    window.seconds["forward"][3, 22:] *= 1.5

    (finding,) = SlowRank().detect(window)

    assert (finding.ranks, finding.first_step) == ((3,), 22)


def test_slow_input_is_named_as_such() -> None:
    window = job(dp=8, pp=1)
    loader = np.full((8, 30, 1), 0.05) * np.exp(0.05 * np.random.default_rng(1).standard_normal((8, 30, 1)))
    loader[2] *= 12
    window = replace(window, seconds={**window.seconds, "loader": loader})

    assert [(f.entity, f.cause) for f in SlowRank().detect(window)] == [("rank:2", "input")]


def test_time_in_communication_names_nobody() -> None:
    window = job(dp=8, pp=1)
    collective = np.full((8, 30, 1), 0.05)
    collective[2] *= 10

    assert entities(replace(window, seconds={**window.seconds, "collective": collective})) == []


def test_missing_times_neither_name_nor_hide_a_rank() -> None:
    window = job(dp=8, pp=2, slow={5: 1.3})
    rng = np.random.default_rng(4)
    for phase in ("forward", "backward"):
        window.seconds[phase][rng.random(window.seconds[phase].shape) < 0.1] = np.nan
    window.seconds["forward"][9] = np.nan
    window.seconds["backward"][9] = np.nan

    assert entities(window) == ["rank:5"]


def test_too_few_steps_or_ranks_yield_nothing() -> None:
    assert entities(job(n_steps=5, slow={1: 2.0})) == []
    assert entities(job(dp=1, pp=1, slow={0: 2.0})) == []
