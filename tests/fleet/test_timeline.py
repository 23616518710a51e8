from __future__ import annotations

import functools

import numpy as np
import pytest

from fleet.durations import DurationModel, Seconds, StepDurations
from fleet.faults import slow_node, slowdown_of
from fleet.schedule import BACKWARD, FORWARD, one_f_one_b
from fleet.timeline import StepTimes, Timeline
from fleet.topology import Topology

TOPOLOGY = Topology(dp=4, pp=3, tp=2, ranks_per_node=2)
N_MICRO = 4


def play(slow: str | None = None, *, factor: float = 1.4, steps: int = 1) -> StepTimes:
    model = DurationModel(TOPOLOGY, N_MICRO, 1.0, seed=5)
    timeline = Timeline(TOPOLOGY, N_MICRO)
    faults = [slow_node(TOPOLOGY, slow, factor=factor, first_step=0, last_step=99)] if slow else []
    for _ in range(steps):
        times = timeline.play(model.draw(slowdown_of(TOPOLOGY, faults)))
    return times


def naive_pass_ends(durations: StepDurations, begin: Seconds, stage: int, dp: int) -> list[float]:
    """The end of each pass of one replica, one rank at a time, by the definition of 1F1B."""
    programs = one_f_one_b(TOPOLOGY.pp, N_MICRO)

    @functools.cache
    def end(stage: int, place: int) -> float:
        slot = programs[stage][place]
        index = slot.direction * N_MICRO + slot.micro
        finished: list[float] = []
        for tp in range(TOPOLOGY.tp):
            at = (stage, dp, tp)
            ready = begin[at] + durations.loader[at] if place == 0 else end(stage, place - 1)
            source = slot.source(TOPOLOGY.pp)
            if source is not None:
                theirs = programs[source.stage].index(source)
                ready = max(ready, end(source.stage, theirs) + durations.handover[stage, index, dp, tp])
            finished.append(float(ready + durations.compute[stage, index, dp, tp]))
        return max(finished) + float(durations.tensor_reduce[stage, index, dp])

    return [end(stage, place) for place in range(2 * N_MICRO)]


def test_one_f_one_b_equals_a_naive_recursion_over_ranks() -> None:
    model = DurationModel(TOPOLOGY, N_MICRO, 1.0, seed=1)
    timeline = Timeline(TOPOLOGY, N_MICRO)
    timeline.play(model.draw())
    durations = model.draw()

    times = timeline.play(durations)

    for stage in range(TOPOLOGY.pp):
        order = [slot.direction * N_MICRO + slot.micro for slot in timeline.programs[stage]]
        for dp in range(TOPOLOGY.dp):
            expected = naive_pass_ends(durations, times.begin, stage, dp)
            np.testing.assert_allclose(times.tensor_end[stage, order, dp], expected, rtol=1e-12)


def test_gradients_are_reduced_when_the_last_replica_has_them() -> None:
    durations = DurationModel(TOPOLOGY, N_MICRO, 1.0, seed=5).draw()
    times = play()

    expected = times.gradient_issue.max(axis=1) + durations.gradient_reduce

    np.testing.assert_array_equal(expected, times.gradient_end)


def test_a_slow_node_delays_its_replicas_and_waits_least_itself() -> None:
    slow_rank = TOPOLOGY.ranks_of("node-005")[0]
    at = TOPOLOGY.coordinates(slow_rank)

    healthy, slow = play(), play("node-005")

    wait = slow.gradient_end[:, None, :] - slow.gradient_issue
    assert (slow.gradient_end > healthy.gradient_end).all()
    assert wait[at["pp"], :, at["tp"]].argmin() == at["dp"]
    assert wait[at["pp"], :, at["tp"]].min() < 0.5 * np.median(wait[at["pp"], :, at["tp"]])


def test_a_slow_stage_makes_the_next_stage_wait_in_its_receives() -> None:
    slow_rank = TOPOLOGY.ranks_of("node-005")[0]
    at = TOPOLOGY.coordinates(slow_rank)

    times = play("node-005")

    waits = (times.compute_begin - times.receive_issue)[:, FORWARD * N_MICRO : BACKWARD * N_MICRO].sum(axis=(1, 3))
    assert waits[at["pp"] + 1].argmax() == at["dp"]


def test_a_slow_rank_alone_is_last_in_its_tensor_group() -> None:
    model = DurationModel(TOPOLOGY, N_MICRO, 1.0, seed=5)
    factors = np.ones(TOPOLOGY.shape)
    factors[1, 2, 0] = 1.5

    times = Timeline(TOPOLOGY, N_MICRO).play(model.draw(factors))

    wait = times.tensor_end[..., None] - times.compute_end
    assert (wait[1, :, 2, 0] < wait[1, :, 2, 1]).all()


def test_only_the_slow_ranks_compute_gets_longer() -> None:
    healthy, slow = play(), play("node-005")

    ratio = (slow.compute_end - slow.compute_begin) / (healthy.compute_end - healthy.compute_begin)

    expected = np.ones(TOPOLOGY.n_ranks)
    expected[list(TOPOLOGY.ranks_of("node-005"))] = 1.4
    np.testing.assert_allclose(ratio.mean(axis=1).reshape(-1), expected)


def test_moments_of_a_step_never_run_backwards() -> None:
    times = play("node-001", steps=3)

    assert (times.loader_end > times.begin).all()
    assert (times.compute_begin >= times.receive_issue).all()
    assert (times.compute_end > times.compute_begin).all()
    assert (times.tensor_end[..., None] > times.compute_end).all()
    assert (times.end > times.gradient_issue).all()


@pytest.mark.parametrize("step_seconds", [0.1, 1.0])
def test_a_healthy_step_takes_about_its_nominal_time(step_seconds: float) -> None:
    topology = Topology()
    model = DurationModel(topology, N_MICRO, step_seconds, seed=2)
    timeline = Timeline(topology, N_MICRO)

    for _ in range(20):
        times = timeline.play(model.draw())

    assert times.end.max() / 20 == pytest.approx(step_seconds, rel=0.03)


def test_same_seed_gives_the_same_job_and_another_seed_another() -> None:
    first, again = (DurationModel(TOPOLOGY, N_MICRO, 1.0, seed=9).draw() for _ in range(2))
    other = DurationModel(TOPOLOGY, N_MICRO, 1.0, seed=10).draw()

    np.testing.assert_array_equal(first.compute, again.compute)
    assert not np.array_equal(first.compute, other.compute)
