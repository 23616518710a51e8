from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from analytics.detectors.suspects import Suspect, cluster_levels, grouped
from analytics.window import Topology, Window


def suspects(effects: Mapping[int, float]) -> list[Suspect]:
    return [Suspect(index, "compute", "forward", effect, 20.0, 1e-9, 0) for index, effect in effects.items()]


def groups(
    effects: Mapping[int, float], *, n_ranks: int = 8, per_node: int = 0, roles: list[int] | None = None
) -> list[tuple[str, tuple[int, ...], int]]:
    nodes = tuple(f"n{rank // per_node}" if per_node else "" for rank in range(n_ranks))
    window = Window("run", Topology(np.arange(n_ranks), nodes), np.arange(9), {}, np.zeros(9, dtype=np.int64))
    found = grouped(window, np.array(roles or [0] * n_ranks), suspects(effects))
    return [(group.entity, tuple(one.index for one in group.suspects), group.n_peers) for group in found]


def test_all_ranks_of_a_node_are_the_node() -> None:
    assert groups({2: 0.3, 3: 0.3}, per_node=2) == [("node:n1", (2, 3), 6)]


@pytest.mark.parametrize("per_node", [0, 4])
def test_some_ranks_of_a_node_or_of_none_are_ranks_the_slowest_first(per_node: int) -> None:
    assert groups({2: 0.3, 3: 0.5}, per_node=per_node) == [("rank:3", (3,), 6), ("rank:2", (2,), 6)]


def test_a_node_of_one_rank_is_a_rank() -> None:
    assert groups({2: 0.3}, per_node=1) == [("rank:2", (2,), 7)]


def test_of_a_pair_one_may_be_named() -> None:
    assert groups({1: 0.2}, n_ranks=2) == [("rank:1", (1,), 1)]


def test_none_of_equals_is_picked() -> None:
    assert groups(dict.fromkeys(range(4), 0.3)) == []
    assert groups(dict.fromkeys(range(5), 0.3)) == []


def test_a_whole_node_may_be_half_of_the_job() -> None:
    assert groups(dict.fromkeys(range(4), 0.3), per_node=4) == [("node:n0", (0, 1, 2, 3), 4)]


def test_slow_ranks_that_are_not_alike_are_no_majority() -> None:
    found = groups({0: 0.1, 1: 0.4, 2: 1.6}, n_ranks=5)

    assert [entity for entity, _, _ in found] == ["rank:2", "rank:1", "rank:0"]


def test_one_roles_equals_do_not_excuse_another_roles_suspect() -> None:
    assert groups({0: 0.3, 1: 0.3, 4: 0.3}, roles=[0] * 4 + [1] * 4) == [("rank:4", (4,), 3)]


def test_ranks_that_are_slow_alike_lift_each_other_to_their_median() -> None:
    z = np.array([[0.5, 6.0, 7.0, 5.5, 0.1, 40.0]])

    levels = cluster_levels(z, np.ones(6, dtype=bool))

    assert levels.tolist() == [0.5, 6.0, 6.0, 6.0, 0.1, 40.0]


def test_ranks_that_are_slow_in_other_phases_are_not_alike() -> None:
    z = np.array([[6.0, 0.2, 0.1], [0.1, 7.0, 0.3]])

    assert cluster_levels(z, np.ones(3, dtype=bool)).tolist() == [6.0, 7.0, 0.3]


def test_effects_that_do_not_matter_and_unknown_ranks_are_not_clustered() -> None:
    z = np.array([[6.0, 7.0, -np.inf]])

    assert cluster_levels(z, np.array([True, False, True])).tolist() == [6.0, 7.0, -np.inf]
