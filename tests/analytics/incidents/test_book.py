"""A look is written whole or not at all, and what was written is read back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Engine, select

from analytics.findings import Cost, Evidence, Finding, Place
from analytics.incidents.book import Book, StaleBookError, finding_of
from analytics.incidents.lifecycle import ABSENT, Opened, Resolved, Track, Updated
from collector.store.records import Base, Delivery, Incident, Run, StoredFinding
from collector.store.records.session import UnitOfWork, open_engine

NOW = datetime(2026, 5, 1, tzinfo=UTC)
FINDING = Finding(
    id="f1",
    kind="slow_rank",
    cause="compute",
    ranks=(2,),
    nodes=("n0",),
    entity="rank:2",
    severity="warning",
    first_step=100,
    last_step=120,
    confidence=0.9,
    summary="rank 2 is slow",
    next="look at it",
    detector="slow_rank/1",
    at=Place(rank=2, step=100),
    cost=Cost(1.4, 0.1),
    evidence=(Evidence("ratio", "slower", 1.5, "", 1.0),),
    ruled_out=("input",),
)
NOTE = replace(FINDING, kind="imbalance", cause="sequence_length", entity="job", severity="info")
Row = TypeVar("Row", bound=Base)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path / 'records.sqlite'}")
    Base.metadata.create_all(engine)
    with UnitOfWork(engine, writing=True) as work:
        work.session.add(Run(id="run-1", started_at=NOW, last_seen_at=NOW))
    yield engine
    engine.dispose()


@pytest.fixture
def book(records: Engine) -> Book:
    return Book(records, clock=lambda: NOW, channels=["webhook", "pager"], public_url="http://fw/")


def rows(records: Engine, kind: type[Row]) -> list[Row]:
    with UnitOfWork(records) as work:
        return list(work.session.scalars(select(kind)))


def track(finding: Finding = FINDING, *, incident: str = "I1") -> Track:
    return Track(finding, 117, 120, 120, finding.first_step, looks=3, id=incident, opened_step=120)


def test_an_opening_is_an_incident_a_finding_and_a_delivery_for_each_channel(records: Engine, book: Book) -> None:
    book.write("run-1", [Opened(track())])

    (incident,) = rows(records, Incident)
    assert (incident.id, incident.state, incident.opened_at, incident.opened_step) == ("I1", "firing", NOW, 120)
    assert (incident.first_step, incident.last_step, incident.slowdown) == (100, 120, 1.4)
    assert incident.finding == FINDING.to_json() | {
        "ranks": [2],
        "nodes": ["n0"],
        "evidence": [{"kind": "ratio", "text": "slower", "value": 1.5, "unit": "", "baseline": 1.0}],
        "ruled_out": ["input"],
    }
    assert [row.incident_id for row in rows(records, StoredFinding)] == ["I1"]
    assert sorted((row.channel, row.event) for row in rows(records, Delivery)) == [
        ("pager", "incident.opened"),
        ("webhook", "incident.opened"),
    ]
    assert rows(records, Run)[0].revision == 1


def test_an_update_tells_nobody_and_keeps_a_finding_only_where_the_verdict_shifted(records: Engine, book: Book) -> None:
    book.write("run-1", [Opened(track())])
    shifted = replace(FINDING, cause="input", severity="critical")

    book.write("run-1", [Updated(track(), is_shifted=False)])
    book.write("run-1", [Updated(track(shifted), is_shifted=True)])

    (incident,) = rows(records, Incident)
    assert (incident.cause, incident.severity) == ("input", "critical")
    assert len(rows(records, StoredFinding)) == 2
    assert len(rows(records, Delivery)) == 2


def test_a_resolution_is_told_and_says_why(records: Engine, book: Book) -> None:
    book.write("run-1", [Opened(track())])

    book.write("run-1", [Resolved(track(), 161, ABSENT)])
    book.write("run-1", [Resolved(track(), 170, ABSENT)])

    (incident,) = rows(records, Incident)
    assert (incident.state, incident.resolved_step, incident.resolved_at) == ("resolved", 161, NOW)
    assert incident.finding["resolution"] == {"reason": "absent", "into": None}
    assert [row.event for row in rows(records, Delivery)].count("incident.resolved") == 2


def test_a_note_is_a_finding_without_an_incident(records: Engine, book: Book) -> None:
    book.write("run-1", [Opened(track(NOTE, incident="N1"))])

    assert [row.incident_id for row in rows(records, StoredFinding)] == [None]
    assert rows(records, Incident) == []
    assert rows(records, Delivery) == []


def test_open_incidents_and_notes_are_read_back_as_tracks(records: Engine, book: Book) -> None:
    book.write("run-1", [Opened(track()), Opened(track(NOTE, incident="N1"))])

    incident, note = book.load("run-1")

    assert (incident.id, incident.is_open, incident.finding) == ("I1", True, FINDING)
    assert (note.is_note, note.is_open, note.finding) == (True, True, NOTE)


def test_resolved_incidents_are_not_read_back(records: Engine, book: Book) -> None:
    book.write("run-1", [Opened(track()), Resolved(track(), 161, ABSENT)])

    assert book.load("run-1") == ()


def test_what_another_process_opened_is_not_opened_again_and_nothing_of_the_look_is_written(
    records: Engine, book: Book
) -> None:
    book.write("run-1", [Opened(track())])

    with pytest.raises(StaleBookError, match="is open already as I1"):
        book.write("run-1", [Opened(track(NOTE, incident="N1")), Opened(track(incident="I2"))])

    assert [row.id for row in rows(records, Incident)] == ["I1"]
    assert len(rows(records, StoredFinding)) == 1
    assert rows(records, Run)[0].revision == 1


def test_a_finding_survives_json() -> None:
    assert finding_of(FINDING.to_json() | {"resolution": {"reason": "absent"}}) == FINDING
