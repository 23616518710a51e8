"""What the records store says about one run: how alive it is, and its incidents as they change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Engine, func, select

from collector.store.records import Incident, Rank, Run
from collector.store.records.incident import RESOLVED
from collector.store.records.session import UnitOfWork

OPENED = "incident_opened"
CLOSED = "incident_resolved"


@dataclass(frozen=True, slots=True)
class IncidentNews:
    """An incident that opened or was resolved."""

    event: str
    incident: str
    entity: str
    kind: str
    cause: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    step: int
    summary: str


class RunNews:
    """Reads one run's rows; each change of an incident is told once."""

    def __init__(self, engine: Engine, run: str) -> None:
        self._engine = engine
        self._run = run
        self._told: set[tuple[str, str]] = set()

    def live_ranks(self) -> int:
        """Return how many ranks the collector has met and not seen end; 0 before the first step has arrived."""
        with UnitOfWork(self._engine) as work:
            run = work.session.get(Run, self._run)
            if run is None or run.last_step < 0:
                return 0
            living = select(func.count()).where(Rank.run_id == self._run, Rank.ended_at.is_(None))
            return work.session.scalar(living) or 0

    def changes(self) -> Iterator[IncidentNews]:
        """Yield what happened to the run's incidents since the last call, in order."""
        with UnitOfWork(self._engine) as work:
            chosen = select(Incident).where(Incident.run_id == self._run).order_by(Incident.opened_at, Incident.id)
            incidents = work.session.scalars(chosen).all()
        for incident in incidents:
            events = (OPENED, CLOSED) if incident.state == RESOLVED else (OPENED,)
            for event in events:
                if (incident.id, event) not in self._told:
                    self._told.add((incident.id, event))
                    yield _news(event, incident)


def _news(event: str, incident: Incident) -> IncidentNews:
    resolved_step = incident.resolved_step if incident.resolved_step is not None else incident.last_step
    return IncidentNews(
        event=event,
        incident=incident.id,
        entity=incident.entity,
        kind=incident.kind,
        cause=incident.cause,
        nodes=tuple(incident.nodes),
        ranks=tuple(incident.ranks),
        step=incident.opened_step if event == OPENED else resolved_step,
        summary=incident.summary,
    )
