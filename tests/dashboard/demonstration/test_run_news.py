from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from collector.store.migrate import migrate_records
from collector.store.records import Incident, Rank, Run
from collector.store.records.incident import FIRING, RESOLVED
from collector.store.records.session import UnitOfWork, open_engine
from dashboard.demonstration.run_news import CLOSED, OPENED, RunNews

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path / 'records.sqlite'}")
    migrate_records(engine)
    with UnitOfWork(engine, writing=True) as work:
        work.session.add(Run(id="a-run", started_at=NOW, last_seen_at=NOW, ended_at=None, world_size=3))
        work.session.flush()
        for rank in range(3):
            work.session.add(make_rank(rank))
    yield engine
    engine.dispose()


def make_rank(rank: int) -> Rank:
    return Rank(
        epoch=f"{rank:016x}",
        run_id="a-run",
        rank=rank,
        world_size=3,
        node="node-000",
        coordinates={},
        sources={},
        clock_offset_ns=0,
        started_at=NOW,
        ended_at=None,
        records_written=None,
    )


def make_incident(state: str, identifier: str = "01A") -> Incident:
    return Incident(
        id=identifier,
        run_id="a-run",
        state=state,
        kind="slow_rank",
        cause="compute",
        entity="node:node-000",
        severity="warning",
        opened_at=NOW,
        updated_at=NOW,
        resolved_at=None if state == FIRING else NOW,
        opened_step=30,
        resolved_step=None if state == FIRING else 120,
        first_step=25,
        last_step=99,
        ranks=[0, 1],
        nodes=["node-000"],
        summary="node-000 is slow",
        confidence=0.9,
        finding={},
    )


def put(engine: Engine, *rows: Incident) -> None:
    with UnitOfWork(engine, writing=True) as work:
        for row in rows:
            work.session.merge(row)


def test_ranks_are_live_once_a_step_has_arrived_and_until_they_end(engine: Engine) -> None:
    news = RunNews(engine, "a-run")
    assert news.live_ranks() == 0

    with UnitOfWork(engine, writing=True) as work:
        work.session.get_one(Run, "a-run").last_step = 0
        work.session.get_one(Rank, f"{1:016x}").ended_at = NOW

    assert news.live_ranks() == 2


def test_a_run_that_is_not_there_has_no_live_ranks(engine: Engine) -> None:
    assert RunNews(engine, "another").live_ranks() == 0


def test_each_change_of_an_incident_is_told_once(engine: Engine) -> None:
    news = RunNews(engine, "a-run")
    put(engine, make_incident(FIRING))
    first = list(news.changes())
    second = list(news.changes())
    put(engine, make_incident(RESOLVED))

    third = list(news.changes())

    assert [(change.event, change.step, change.nodes) for change in first] == [(OPENED, 30, ("node-000",))]
    assert second == []
    assert [(change.event, change.step) for change in third] == [(CLOSED, 120)]


def test_an_incident_that_opened_and_closed_between_two_looks_is_told_in_full(engine: Engine) -> None:
    put(engine, make_incident(RESOLVED))

    assert [change.event for change in RunNews(engine, "a-run").changes()] == [OPENED, CLOSED]


def test_incidents_of_other_runs_are_not_told(engine: Engine) -> None:
    put(engine, make_incident(FIRING))

    assert list(RunNews(engine, "another").changes()) == []
