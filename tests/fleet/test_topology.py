from __future__ import annotations

import pytest

from fleet.topology import Topology, topology_for
from flightwatch.errors import FlightwatchError


def test_default_job_has_1024_ranks_on_128_nodes_of_one_tensor_group_each() -> None:
    topology = Topology()

    assert (topology.n_ranks, topology.n_nodes) == (1024, 128)
    assert topology.ranks_of("node-037") == topology.tensor_group(296)


def test_coordinates_and_rank_are_inverse() -> None:
    topology = Topology(dp=3, pp=2, tp=4)

    assert list(range(24)) == [topology.rank(**topology.coordinates(rank)) for rank in range(24)]


def test_every_group_holds_its_own_rank_and_differs_in_one_coordinate_only() -> None:
    topology = Topology(dp=3, pp=2, tp=4)
    rank = topology.rank(dp=1, pp=1, tp=2)

    groups = {"tp": topology.tensor_group(rank), "dp": topology.data_group(rank), "pp": topology.pipeline_group(rank)}

    for name, members in groups.items():
        assert rank in members
        others = [{k: v for k, v in topology.coordinates(member).items() if k != name} for member in members]
        assert all(other == others[0] for other in others)


def test_small_job_gets_a_topology_of_exactly_its_size() -> None:
    for ranks in (1, 2, 7, 12, 64, 1000, 1024):
        assert ranks == topology_for(ranks).n_ranks


def test_last_node_may_be_partly_filled() -> None:
    topology = Topology(dp=3, pp=1, tp=4)

    assert topology.ranks_of("node-001") == (8, 9, 10, 11)


@pytest.mark.parametrize("name", ["node-128", "node-", "host-1", "node--1", ""])
def test_unknown_node_is_refused_by_name(name: str) -> None:
    with pytest.raises(FlightwatchError, match="no node"):
        Topology().ranks_of(name)
