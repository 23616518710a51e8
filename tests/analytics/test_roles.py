from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analytics.roles import roles_of
from analytics.window import Topology, Window
from tests.analytics.detectors.grid import job


def untold(window: Window) -> Window:
    """Return the window without its coordinates."""
    return replace(window, topology=Topology(window.topology.ranks, window.topology.nodes))


def test_stages_that_are_told_are_the_roles() -> None:
    topology = job(dp=3, pp=2).topology

    assert roles_of(topology).tolist() == [0, 1] * 3


def test_experts_of_one_stage_are_roles_of_their_own() -> None:
    coordinates = {"pp": np.array([1, 1, 0, 0, 1, 1, 0, 0]), "ep": np.array([0, 1, 0, 1, 0, 1, 0, 1])}

    roles = roles_of(Topology(np.arange(8), ("",) * 8, coordinates))

    assert roles.tolist() == [2, 3, 0, 1, 2, 3, 0, 1]


def test_a_stage_that_is_told_of_some_ranks_only_is_not_believed() -> None:
    topology = Topology(np.arange(4), ("",) * 4, {"pp": np.array([0, 1, -1, 1])})

    assert roles_of(topology).tolist() == [0, 0, 0, 0]


def test_replicas_alone_leave_no_room_for_stages() -> None:
    window = job(dp=8, pp=1)
    window.seconds["forward"][4:] *= 2
    window.seconds["backward"][4:] *= 2

    assert roles_of(window.topology, window).tolist() == [0] * 8


@pytest.mark.parametrize("stages", [(1.0, 1.6), (1.0, 1.4, 2.0, 2.8)])
def test_untold_stages_are_found_by_their_levels_of_compute(stages: tuple[float, ...]) -> None:
    window = untold(job(dp=8, pp=len(stages), stages=stages))

    assert roles_of(window.topology, window).tolist() == list(range(len(stages))) * 8


@pytest.mark.parametrize("slow", [{}, {5: 1.5}, {4: 1.5, 5: 1.5}, {0: 1.4, 1: 1.4, 2: 1.4}])
def test_slow_ranks_do_not_become_a_role_that_would_hide_them(slow: dict[int, float]) -> None:
    window = untold(job(dp=32, pp=1, slow=slow))

    assert roles_of(window.topology, window).tolist() == [0] * 32


def test_ranks_that_show_other_ops_are_another_role() -> None:
    window = untold(job(dp=8, pp=1))
    window.seconds["backward"][:4] = np.nan

    roles = roles_of(window.topology, window)

    assert len(set(roles[:4].tolist())) == len(set(roles[4:].tolist())) == 1
    assert roles[0] != roles[4]


def test_ranks_without_any_time_get_a_role_and_split_nobody() -> None:
    window = untold(job(dp=8, pp=1))
    for cube in window.seconds.values():
        cube[3] = np.nan

    roles = roles_of(window.topology, window)

    assert len(set(np.delete(roles, 3).tolist())) == 1


def test_nothing_known_is_one_role() -> None:
    assert roles_of(Topology(np.arange(3), ("",) * 3)).tolist() == [0, 0, 0]
