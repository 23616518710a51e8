from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analytics.pipeline_replay import (
    observed_step_seconds,
    one_forward_one_backward,
    replica_order,
    slowdown_against,
    slowdown_of,
    step_seconds_modelled,
    wasted_accelerator_hours,
)
from analytics.window import Topology
from tests.analytics.detectors.grid import job


def naive_end(forward: np.ndarray, backward: np.ndarray) -> float:
    """Return one replica's end in one step, op by op and by recursion: forward, backward (n_stages, n_micro)."""
    n_stages, n_micro = forward.shape

    def order(stage: int) -> list[tuple[str, int]]:
        ahead = min(n_stages - 1 - stage, n_micro)
        ops = [("F", micro) for micro in range(ahead)]
        for micro in range(n_micro):
            if ahead + micro < n_micro:
                ops.append(("F", ahead + micro))
            ops.append(("B", micro))
        return ops

    ends: dict[tuple[int, str, int], float] = {}

    def end(stage: int, kind: str, micro: int) -> float:
        key = (stage, kind, micro)
        if key not in ends:
            place = order(stage).index((kind, micro))
            waits = [end(stage, *order(stage)[place - 1])] if place else []
            sender = stage - 1 if kind == "F" else stage + 1
            waits += [end(sender, kind, micro)] if 0 <= sender < n_stages else []
            ends[key] = max(waits, default=0.0) + (forward if kind == "F" else backward)[stage, micro]
        return ends[key]

    return max(end(stage, "B", n_micro - 1) for stage in range(n_stages))


@pytest.mark.parametrize(("n_stages", "n_micro"), [(1, 1), (1, 5), (2, 1), (2, 4), (3, 2), (4, 4), (4, 9), (5, 3)])
def test_replay_equals_a_naive_recursion(n_stages: int, n_micro: int) -> None:
    rng = np.random.default_rng(n_stages * 10 + n_micro)
    forward, backward = rng.lognormal(0, 0.5, (2, n_stages, 3, 2, n_micro))

    ends = one_forward_one_backward(forward, backward)

    expected = [[naive_end(forward[:, r, s], backward[:, r, s]) for s in range(2)] for r in range(3)]
    np.testing.assert_allclose(ends, expected, rtol=1e-12)


def test_equal_stages_take_the_textbook_time() -> None:
    ends = one_forward_one_backward(np.full((4, 1, 1, 8), 1.0), np.full((4, 1, 1, 8), 2.0))

    assert ends.tolist() == [[(8 + 4 - 1) * 3.0]]


def test_a_step_is_its_slowest_replica_and_its_slowest_optimizer() -> None:
    window = job(dp=3, pp=2, n_steps=2, noise=0.0)
    window.seconds["forward"][4:] *= 2  # both stages of the last replica
    window.seconds["backward"][4:] *= 2
    window.seconds["optimizer"][1] = 0.5

    np.testing.assert_allclose(step_seconds_modelled(window), (8 + 2 - 1) * 0.6 + 0.5)


def test_healing_the_slow_rank_is_worth_what_it_costs() -> None:
    window = job(dp=4, pp=1, noise=0.0, slow={2: 1.5})
    factors = np.ones((4, 30))
    factors[2] = 1.5

    assert slowdown_of(window, factors) == pytest.approx((8 * 0.45 + 0.01) / (8 * 0.3 + 0.01 / 1.0), rel=1e-2)


def test_what_the_model_does_not_explain_stays() -> None:
    window = job(dp=4, pp=1, noise=0.0, slow={2: 1.5})
    modelled = step_seconds_modelled(window)
    measured = np.broadcast_to(2 * modelled[:, None], (4, 30, 1))
    window = replace(window, seconds={**window.seconds, "step": measured})
    factors = np.ones((4, 30))
    factors[2] = 1.5

    saved = 8 * 0.15
    expected = 2 * modelled[0] / (2 * modelled[0] - saved)
    assert observed_step_seconds(window)[0] == 2 * modelled[0]
    assert slowdown_of(window, factors) == pytest.approx(expected, rel=5e-3)


def test_a_change_for_the_worse_is_no_gain() -> None:
    window = job(dp=4, pp=1, noise=0.0)

    assert slowdown_against(window, {"forward": 2 * window.seconds["forward"]}) == 1.0


def test_steps_that_nobody_showed_are_left_out() -> None:
    window = job(dp=4, pp=1, noise=0.0)
    for cube in window.seconds.values():
        cube[:] = np.nan

    assert slowdown_of(window, np.full((4, 30), 1.5)) == 1.0
    assert wasted_accelerator_hours(window, 1.5, 0) == 0.0


def test_hours_lost_are_ranks_times_time_times_share() -> None:
    window = job(dp=4, pp=1, n_steps=30, noise=0.0)
    window = replace(window, seconds={**window.seconds, "step": np.full((4, 30, 1), 3600.0)})

    assert wasted_accelerator_hours(window, 2.0, 20) == pytest.approx(4 * 10 * 0.5)


@pytest.mark.parametrize(
    ("coordinates", "expected"),
    [
        ({"dp": [0, 0, 1, 1], "pp": [0, 1, 0, 1]}, [[0, 2], [1, 3]]),
        ({"pp": [1, 0]}, [[1], [0]]),
        ({"dp": [0, 0, 1, 1], "pp": [1, 3, 1, 3]}, [[0, 2], [1, 3]]),
        ({"dp": [0, 0, 1], "pp": [0, 1, 0]}, None),
        ({"dp": [0, 0, 0, 0], "pp": [0, 1, 0, 1]}, None),
        ({"dp": [0, 1]}, None),
        ({"dp": [0, 1], "pp": [0, -1]}, None),
    ],
)
def test_a_pipeline_is_replayed_only_where_it_is_told_and_regular(
    coordinates: dict[str, list[int]], expected: list[list[int]] | None
) -> None:
    n_ranks = len(next(iter(coordinates.values())))
    topology = Topology(
        np.arange(n_ranks), ("",) * n_ranks, {name: np.array(values) for name, values in coordinates.items()}
    )

    order = replica_order(topology)

    assert (None if order is None else order.tolist()) == expected
