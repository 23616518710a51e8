from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from fleet.faults import Fault, FaultSchedule, slow_node, slow_node_loop, slowdown_of
from fleet.topology import Topology
from flightwatch.errors import FlightwatchError

TOPOLOGY = Topology(dp=4, pp=2, tp=8)


def loop(seed: int = 4) -> Iterator[Fault]:
    return slow_node_loop(TOPOLOGY, healthy_steps=25, slow_steps=75, rest_steps=60, factor=1.4, seed=seed)


def test_loop_slows_one_node_after_another_with_rests_between() -> None:
    first, second = itertools.islice(loop(), 2)

    assert (first.first_step, first.last_step) == (25, 99)
    assert (second.first_step, second.last_step) == (160, 234)
    assert first.node != second.node


def test_schedule_says_which_faults_act_and_remembers_those_that_began() -> None:
    schedule = FaultSchedule((), loop())

    acting = [len(schedule.active(step)) for step in range(240)]

    assert acting == [0] * 25 + [1] * 75 + [0] * 60 + [1] * 75 + [0] * 5
    assert [fault.first_step for fault in schedule.met] == [25, 160]


def test_same_seed_gives_the_same_nodes() -> None:
    assert list(itertools.islice(loop(7), 5)) == list(itertools.islice(loop(7), 5))


def test_slowdown_is_the_product_of_the_faults_on_a_rank_and_one_elsewhere() -> None:
    faults = [slow_node(TOPOLOGY, "node-003", factor=factor, first_step=0, last_step=1) for factor in (1.5, 2.0)]

    slowdown = slowdown_of(TOPOLOGY, faults)

    assert slowdown is not None
    assert {rank: slowdown.reshape(-1)[rank] for rank in (24, 31)} == {24: 3.0, 31: 3.0}
    assert slowdown.sum() == TOPOLOGY.n_ranks + 8 * 2.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "cosmic_ray"}, "unknown fault"),
        ({"factor": 0.5}, "from 1 to 1000"),
        ({"factor": float("nan")}, "from 1 to 1000"),
        ({"first_step": 9, "last_step": 3}, "from step 9 to step 3"),
        ({"first_step": -1}, "from step -1"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    fields = {"kind": "compute_slow", "ranks": (0,), "factor": 1.4, "first_step": 0, "last_step": 5}

    with pytest.raises(FlightwatchError, match=message):
        Fault(**{**fields, **change})  # type: ignore[arg-type]
