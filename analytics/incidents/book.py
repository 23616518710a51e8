"""The incidents of one store: what an engine reads at its start, and the one transaction that a look is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session
from ulid import ULID

from analytics.findings import CRITICAL, INFO, Cost, Evidence, Finding, Place
from analytics.incidents.lifecycle import Event, Opened, Resolved, Track, Updated
from analytics.notify.message import OPENED, RESOLVED, body_of
from collector.store.records import Delivery, Incident, Run, StoredFinding
from collector.store.records.incident import FIRING
from collector.store.records.incident import RESOLVED as RESOLVED_STATE
from collector.store.records.session import UnitOfWork
from flightwatch.errors import FlightwatchError

NOTES_READ = 200  # newest notes looked through at a start; what is older is told again if it still holds


class StaleBookError(FlightwatchError):
    """Another analytics process has opened this incident; read the book again."""


class Book:
    """Reads and writes incidents, findings and the outbox.

    Args:
        records: the records store.
        clock: gives aware UTC times.
        channels: names of the channels that are told of each opened and resolved incident.
        public_url: where people reach the dashboard, for links.
    """

    def __init__(
        self, records: Engine, *, clock: Callable[[], datetime], channels: Sequence[str] = (), public_url: str = ""
    ) -> None:
        self._records = records
        self._clock = clock
        self._channels = tuple(channels)
        self._public_url = public_url.rstrip("/")

    def new_id(self) -> str:
        """Return an id that sorts by time."""
        return str(ULID.from_datetime(self._clock()))

    def load(self, run_id: str) -> tuple[Track, ...]:
        """Return the open incidents and the notes of a run as tracks; pending suspects are not kept over a restart."""
        with UnitOfWork(self._records) as work:
            incidents = work.session.scalars(
                select(Incident).where(Incident.run_id == run_id, Incident.state == FIRING).order_by(Incident.id)
            ).all()
            notes = work.session.scalars(
                select(StoredFinding)
                .where(StoredFinding.run_id == run_id, StoredFinding.incident_id.is_(None))
                .order_by(StoredFinding.id.desc())
                .limit(NOTES_READ)
            ).all()
        newest: dict[tuple[str, str, str], StoredFinding] = {}
        for note in notes:
            body = note.body
            newest.setdefault((body["kind"], body["entity"], body["cause"]), note)
        return tuple(map(_track_of, incidents)) + tuple(map(_track_of_note, newest.values()))

    def write(self, run_id: str, events: Sequence[Event], *, is_new_data: bool = True) -> None:
        """Write what one look brought, all or nothing: incidents, findings, deliveries, and the run's next revision.

        Raises:
            StaleBookError: an incident to be opened is open already, by another process.
        """
        now = self._clock()
        with UnitOfWork(self._records, writing=True) as work:
            if is_new_data or events:
                # first, so that on PostgreSQL the run's row is locked while its incidents are compared
                work.session.execute(update(Run).where(Run.id == run_id).values(revision=Run.revision + 1))
            for event in events:
                match event:
                    case Opened(track) if track.is_note:
                        self._keep(work.session, run_id, track.finding, None, now)
                    case Opened(track):
                        self._open(work.session, run_id, track, now)
                    case Updated(track, is_shifted):
                        self._update(work.session, run_id, track, is_shifted, now)
                    case Resolved():
                        self._resolve(work.session, event, now)

    def _open(self, session: Session, run_id: str, track: Track, now: datetime) -> None:
        finding = track.finding
        twin = session.scalar(
            select(Incident.id).where(
                Incident.run_id == run_id,
                Incident.state == FIRING,
                Incident.kind == finding.kind,
                Incident.entity == finding.entity,
            )
        )
        if twin is not None:
            raise StaleBookError(f"run {run_id}: {finding.kind} of {finding.entity} is open already as {twin}")
        incident = Incident(id=track.id, run_id=run_id, state=FIRING, opened_at=now, opened_step=track.opened_step)
        _describe(incident, track, now)
        session.add(incident)
        session.flush()
        self._keep(session, run_id, finding, track.id, now)
        self._post(session, incident, OPENED, now)

    def _update(self, session: Session, run_id: str, track: Track, is_shifted: bool, now: datetime) -> None:
        incident = session.get(Incident, track.id)
        if incident is None or incident.state != FIRING:
            raise StaleBookError(f"incident {track.id} is no longer open")
        _describe(incident, track, now)
        if is_shifted:
            self._keep(session, run_id, track.finding, track.id, now)

    def _resolve(self, session: Session, event: Resolved, now: datetime) -> None:
        incident = session.get(Incident, event.track.id)
        if incident is None or incident.state != FIRING:
            return
        incident.state = RESOLVED_STATE
        incident.resolved_at = incident.updated_at = now
        incident.resolved_step = event.step
        incident.finding = {**incident.finding, "resolution": {"reason": event.reason, "into": event.into or None}}
        self._post(session, incident, RESOLVED, now)

    def _keep(self, session: Session, run_id: str, finding: Finding, incident_id: str | None, now: datetime) -> None:
        session.add(
            StoredFinding(
                id=self.new_id(), run_id=run_id, incident_id=incident_id, created_at=now, body=finding.to_json()
            )
        )

    def _post(self, session: Session, incident: Incident, event: str, now: datetime) -> None:
        for channel in self._channels:
            session.add(
                Delivery(
                    id=f"msg_{self.new_id()}",
                    incident_id=incident.id,
                    event=event,
                    channel=channel,
                    body=body_of(incident, event, at=now, public_url=self._public_url),
                    created_at=now,
                    next_attempt_at=now,
                )
            )


def finding_of(body: Mapping[str, Any]) -> Finding:
    """Return the finding that `Finding.to_json` wrote; keys that it does not know are left out."""
    names = {item.name for item in fields(Finding)}
    values = {key: value for key, value in body.items() if key in names}
    values["ranks"], values["nodes"] = tuple(body["ranks"]), tuple(body["nodes"])
    values["at"], values["cost"] = Place(**body.get("at", {})), Cost(**body.get("cost", {}))
    values["evidence"] = tuple(Evidence(**item) for item in body.get("evidence", ()))
    values["ruled_out"] = tuple(body.get("ruled_out", ()))
    return Finding(**values)


def _track_of(incident: Incident) -> Track:
    finding = finding_of(incident.finding)
    return Track(
        finding=finding,
        first_seen_step=incident.opened_step,
        last_seen_step=incident.last_step,
        named_step=incident.last_step,
        first_step=incident.first_step,
        id=incident.id,
        opened_step=incident.opened_step,
    )


def _track_of_note(note: StoredFinding) -> Track:
    finding = finding_of(note.body)
    last = finding.last_step
    return Track(finding, last, last, last, finding.first_step, id=note.id, opened_step=last)


def _describe(incident: Incident, track: Track, now: datetime) -> None:
    finding = track.finding
    assert finding.severity != INFO, "an innocent explanation opens no incident"  # noqa: S101 - a broken invariant
    incident.kind, incident.cause, incident.entity = finding.kind, finding.cause, finding.entity
    incident.severity = finding.severity if incident.severity != CRITICAL else CRITICAL
    incident.updated_at = now
    incident.first_step, incident.last_step = track.first_step, track.last_seen_step
    incident.ranks, incident.nodes = list(finding.ranks), list(finding.nodes)
    incident.summary, incident.confidence = finding.summary, finding.confidence
    incident.slowdown = finding.cost.slowdown
    incident.finding = finding.to_json()
