"""Who takes part in a run now: the ranks of its newest attempt, read from the records store when something changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from analytics.window import UNKNOWN, Topology
from collector.store.records import Rank

UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False)
class Roster:
    """The newest attempt's ranks. `is_live` (n,): no end known; `started_unix_ns` (n,): when its process began."""

    attempt: int
    topology: Topology
    is_live: NDArray[np.bool_]
    started_unix_ns: NDArray[np.int64]
    node_sizes: Mapping[str, int]


def signature_of(session: Session, run_id: str) -> tuple[object, ...]:
    """Return what changes whenever a rank of the run starts, restarts or ends; one indexed query."""
    columns = (func.count(), func.max(Rank.attempt), func.max(Rank.started_at), func.count(Rank.ended_at))
    return tuple(session.execute(select(*columns).where(Rank.run_id == run_id)).one())


def read_roster(session: Session, run_id: str) -> Roster | None:
    """Return the roster, None where no rank of the run is known. O(ranks) in Python: for changes, not every look."""
    rows = session.execute(_newest_first(run_id)).all()
    if not rows:
        return None
    attempt = rows[0].attempt
    newest: dict[int, Any] = {}
    for row in rows:
        if row.attempt == attempt:
            newest.setdefault(row.rank, row)
    ranks = sorted(newest)
    members = [newest[rank] for rank in ranks]
    names = sorted({name for member in members for name in member.coordinates})
    return Roster(
        attempt=attempt,
        topology=Topology(
            ranks=np.array(ranks, dtype=np.int64),
            nodes=tuple(member.node for member in members),
            coordinates={
                name: np.array([_coordinate(member.coordinates.get(name)) for member in members], dtype=np.int64)
                for name in names
            },
        ),
        is_live=np.array([member.ended_at is None for member in members], dtype=bool),
        started_unix_ns=np.array([_unix_ns(member.started_at) for member in members], dtype=np.int64),
        node_sizes=Counter(member.node for member in members),
    )


def _newest_first(run_id: str) -> Select[int, int, str, dict[str, Any], datetime, datetime | None]:
    return (
        select(Rank.attempt, Rank.rank, Rank.node, Rank.coordinates, Rank.started_at, Rank.ended_at)
        .where(Rank.run_id == run_id)
        .order_by(Rank.attempt.desc(), Rank.started_at.desc())
    )


def _coordinate(value: object) -> int:
    return value if isinstance(value, int) else UNKNOWN


def _unix_ns(time: datetime) -> int:
    # in whole numbers: a float of today's ns is off by up to 256, and a process's first record may start at its start
    return (time - UNIX_EPOCH) // timedelta(microseconds=1) * 1000
