"""Who takes part in a run, read from Rank rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
from sqlalchemy import update

from analytics.roster import Roster, read_roster, signature_of
from collector.store.records import Rank
from collector.store.records.session import UnitOfWork


def read(job: Any) -> tuple[tuple[object, ...], Roster | None]:
    with UnitOfWork(job.records) as work:
        return signature_of(work.session, "run-1"), read_roster(work.session, "run-1")


def test_ranks_stand_in_order_with_their_nodes_and_coordinates(job: Any) -> None:
    _, roster = read(job)

    assert roster is not None
    np.testing.assert_array_equal(roster.topology.ranks, np.arange(8))
    assert roster.topology.nodes == ("n0",) * 4 + ("n1",) * 4
    np.testing.assert_array_equal(roster.topology.coordinates["dp"], np.arange(8))
    assert roster.node_sizes == {"n0": 4, "n1": 4}
    assert roster.is_live.all()


def test_coordinates_that_are_not_known_are_minus_one(job: Any) -> None:
    with UnitOfWork(job.records, writing=True) as work:
        work.session.execute(update(Rank).where(Rank.rank == 3).values(coordinates={"pp": 1}))

    _, roster = read(job)

    assert roster is not None
    assert roster.topology.coordinates["dp"].tolist() == [0, 1, 2, -1, 4, 5, 6, 7]
    assert roster.topology.coordinates["pp"].tolist() == [-1, -1, -1, 1, -1, -1, -1, -1]


def test_only_the_newest_attempt_counts_and_of_each_rank_its_newest_process(job: Any) -> None:
    job.start_attempt(1)
    with UnitOfWork(job.records, writing=True) as work:
        work.session.execute(update(Rank).where(Rank.attempt == 0).values(ended_at=job.clock.utc()))
        later = job.clock.utc() + timedelta(seconds=5)
        work.session.add(
            Rank(
                epoch="f" * 16,
                run_id="run-1",
                attempt=1,
                rank=2,
                world_size=8,
                node="spare",
                coordinates={"dp": 2},
                sources={},
                clock_offset_ns=0,
                started_at=later,
            )
        )

    _, roster = read(job)

    assert roster is not None
    assert (roster.attempt, len(roster.topology.ranks), roster.topology.nodes[2]) == (1, 8, "spare")
    assert roster.is_live.all()


def test_the_signature_moves_when_a_rank_ends(job: Any) -> None:
    before, _ = read(job)
    with UnitOfWork(job.records, writing=True) as work:
        work.session.execute(update(Rank).where(Rank.rank == 3).values(ended_at=job.clock.utc()))

    after, roster = read(job)

    assert before != after
    assert roster is not None
    assert roster.is_live.tolist() == [True, True, True, False, True, True, True, True]
