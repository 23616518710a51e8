"""What pages and API ask of the records store, as plain frozen rows. One session per question, none kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from sqlalchemy import Engine, Select, func, select

from analytics.window import UNKNOWN, Topology
from collector.store.records import Delivery, Incident, Rank, Run, StoredFinding
from collector.store.records.incident import FIRING
from collector.store.records.session import UnitOfWork

MAX_RUNS = 200
MAX_INCIDENTS = 500
MAX_HISTORY = 200


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run, with how many ranks and nodes of it were ever heard and how many incidents are open."""

    id: str
    name: str
    state: str
    world_size: int
    ranks: int
    nodes: int
    last_step: int
    started_at: datetime
    last_seen_at: datetime
    ended_at: datetime | None
    open_incidents: int
    incidents: int
    revision: int


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """An incident with its newest finding, whole, as docs/findings.md describes it."""

    id: str
    run_id: str
    state: str
    kind: str
    cause: str
    entity: str
    severity: str
    opened_at: datetime
    updated_at: datetime
    resolved_at: datetime | None
    opened_step: int
    resolved_step: int | None
    first_step: int
    last_step: int
    ranks: list[int]
    nodes: list[str]
    summary: str
    confidence: float
    slowdown: float
    finding: dict[str, Any]

    @property
    def is_open(self) -> bool:
        """Return whether it still goes on."""
        return self.state == FIRING


@dataclass(frozen=True, slots=True)
class FindingRow:
    """What a detector said, and when."""

    id: str
    created_at: datetime
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A message about an incident and how far it got."""

    id: str
    event: str
    channel: str
    state: str
    attempts: int
    created_at: datetime
    sent_at: datetime | None
    last_error: str


def list_runs(engine: Engine, *, run_id: str | None = None, most: int = MAX_RUNS) -> list[RunRow]:
    """Return the newest runs first, or the one run of `run_id` (an empty list if there is none)."""
    heard = (
        select(
            Rank.run_id,
            func.count(Rank.rank.distinct()).label("ranks"),
            func.count(Rank.node.distinct()).label("nodes"),
        )
        .group_by(Rank.run_id)
        .subquery()
    )
    troubles = (
        select(
            Incident.run_id,
            func.count().label("incidents"),
            func.count().filter(Incident.state == FIRING).label("open_incidents"),
        )
        .group_by(Incident.run_id)
        .subquery()
    )
    counts = [
        func.coalesce(column, 0)
        for column in (heard.c.ranks, heard.c.nodes, troubles.c.open_incidents, troubles.c.incidents)
    ]
    query = (
        select(Run, *counts)
        .outerjoin(heard, heard.c.run_id == Run.id)
        .outerjoin(troubles, troubles.c.run_id == Run.id)
        .order_by(Run.started_at.desc(), Run.id)
        .limit(most)
    )
    if run_id is not None:
        query = query.where(Run.id == run_id)
    with UnitOfWork(engine) as work:
        return [_run_row(*row) for row in work.session.execute(query)]


def find_run(engine: Engine, run_id: str) -> RunRow | None:
    """Return the run, None if it is unknown."""
    return next(iter(list_runs(engine, run_id=run_id)), None)


def list_incidents(engine: Engine, run_id: str) -> list[IncidentRow]:
    """Return the run's incidents: open ones first, dearest first, then the newest."""
    query = select(Incident).where(Incident.run_id == run_id)
    query = query.order_by((Incident.state != FIRING), Incident.slowdown.desc(), Incident.opened_at.desc())
    return _incidents(engine, query.limit(MAX_INCIDENTS))


def find_incident(engine: Engine, incident_id: str) -> IncidentRow | None:
    """Return the incident, None if it is unknown."""
    return next(iter(_incidents(engine, select(Incident).where(Incident.id == incident_id))), None)


def list_findings(engine: Engine, incident_id: str) -> list[FindingRow]:
    """Return what detectors said of the incident, oldest first, the newest MAX_HISTORY of it."""
    query = select(StoredFinding).where(StoredFinding.incident_id == incident_id)
    return _findings(engine, query)[::-1]


def list_explanations(engine: Engine, run_id: str, *, most: int = 3) -> list[FindingRow]:
    """Return the run's newest findings that accuse nobody, newest first."""
    query = select(StoredFinding).where(StoredFinding.run_id == run_id, StoredFinding.incident_id.is_(None))
    return _findings(engine, query)[:most]


def list_deliveries(engine: Engine, incident_id: str) -> list[DeliveryRow]:
    """Return what was told of the incident, oldest first."""
    query = select(Delivery).where(Delivery.incident_id == incident_id).order_by(Delivery.created_at)
    with UnitOfWork(engine) as work:
        return [
            DeliveryRow(
                id=d.id,
                event=d.event,
                channel=d.channel,
                state=d.state,
                attempts=d.attempts,
                created_at=d.created_at,
                sent_at=d.sent_at,
                last_error=d.last_error,
            )
            for d in work.session.scalars(query)
        ]


def topology_version(engine: Engine, run_id: str) -> tuple[int, datetime | None]:
    """Return what changes whenever a rank of the run starts: the number of epochs and the newest start."""
    query = select(func.count(), func.max(Rank.started_at)).where(Rank.run_id == run_id)
    with UnitOfWork(engine) as work:
        epochs, newest = work.session.execute(query).one()
    return int(epochs), newest


def topology(engine: Engine, run_id: str) -> Topology:
    """Return who is in the run's newest attempt, where, with which coordinates; of a rank's lives the newest."""
    newest = select(func.max(Rank.attempt)).where(Rank.run_id == run_id).scalar_subquery()
    query = select(Rank.rank, Rank.node, Rank.coordinates).where(Rank.run_id == run_id, Rank.attempt == newest)
    with UnitOfWork(engine) as work:
        rows = {row.rank: row for row in work.session.execute(query.order_by(Rank.started_at))}
    ranks = sorted(rows)
    names = sorted({name for row in rows.values() for name in row.coordinates})
    return Topology(
        ranks=np.array(ranks, dtype=np.int64),
        nodes=tuple(rows[rank].node for rank in ranks),
        coordinates={
            name: np.array([int(rows[rank].coordinates.get(name, UNKNOWN)) for rank in ranks], dtype=np.int64)
            for name in names
        },
    )


def counters(engine: Engine, *, most: int = MAX_RUNS) -> dict[str, str]:
    """Return, per run, a short text that changes when a page about it would."""
    troubles = (
        select(Incident.run_id, func.count().label("n"), func.max(Incident.updated_at).label("newest"))
        .group_by(Incident.run_id)
        .subquery()
    )
    query = (
        select(Run.id, Run.revision, Run.last_step, Run.state, troubles.c.n, troubles.c.newest)
        .outerjoin(troubles, troubles.c.run_id == Run.id)
        .order_by(Run.last_seen_at.desc())
        .limit(most)
    )
    with UnitOfWork(engine) as work:
        return {row[0]: "/".join(str(part) for part in row[1:]) for row in work.session.execute(query)}


def _run_row(run: Run, ranks: int, nodes: int, open_incidents: int, incidents: int) -> RunRow:
    return RunRow(
        id=run.id,
        name=run.name,
        state=run.state,
        world_size=run.world_size,
        ranks=ranks,
        nodes=nodes,
        last_step=run.last_step,
        started_at=run.started_at,
        last_seen_at=run.last_seen_at,
        ended_at=run.ended_at,
        open_incidents=open_incidents,
        incidents=incidents,
        revision=run.revision,
    )


def _incidents(engine: Engine, query: Select[Incident]) -> list[IncidentRow]:
    names = IncidentRow.__slots__
    with UnitOfWork(engine) as work:
        return [IncidentRow(**{n: getattr(row, n) for n in names}) for row in work.session.scalars(query)]


def _findings(engine: Engine, query: Select[StoredFinding]) -> list[FindingRow]:
    newest = query.order_by(StoredFinding.created_at.desc(), StoredFinding.id.desc()).limit(MAX_HISTORY)
    with UnitOfWork(engine) as work:
        return [FindingRow(id=f.id, created_at=f.created_at, body=f.body) for f in work.session.scalars(newest)]
