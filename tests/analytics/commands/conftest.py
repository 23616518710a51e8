"""A records store with a few runs and incidents, reached through the environment as the verbs do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from collector.store.migrate import migrate_records
from collector.store.records import Delivery, Incident, Run
from collector.store.records.session import UnitOfWork, open_engine
from flightwatch.cli import main

FINDING = {
    "cost": {"slowdown": 1.4, "wasted_accelerator_hours": 0.25},
    "evidence": [
        {"kind": "ratio", "text": "computes longer than its peers", "value": 1.5, "unit": "", "baseline": 1.0}
    ],
    "ruled_out": ["sequence length: equal on all ranks"],
    "would_change_my_mind": "A run of the same batch without it.",
    "next": "Drain node n0.",
}


class Shelf:
    """The store, and what tests put into it."""

    def __init__(self, records: Engine) -> None:
        self.records = records
        self.now = datetime.now(UTC)

    def run(self, run_id: str, *, seen_seconds_ago: float = 1.0, **changes: object) -> None:
        seen = self.now - timedelta(seconds=seen_seconds_ago)
        values: dict[str, object] = {"started_at": self.now - timedelta(hours=3), "world_size": 4, "last_step": 41}
        with UnitOfWork(self.records, writing=True) as work:
            work.session.add(Run(**{"id": run_id, "last_seen_at": seen, **values, **changes}))

    def incident(self, incident_id: str, *, run: str = "run-1", **changes: object) -> None:
        values: dict[str, object] = {
            "id": incident_id,
            "run_id": run,
            "kind": "slow_rank",
            "cause": "compute",
            "entity": "rank:2",
            "severity": "warning",
            "opened_at": self.now - timedelta(minutes=5),
            "updated_at": self.now,
            "opened_step": 110,
            "first_step": 100,
            "last_step": 150,
            "ranks": [2],
            "nodes": ["n0"],
            "summary": "Rank 2 computes 1.5 times slower than its peers.",
            "confidence": 0.97,
            "slowdown": 1.4,
            "finding": FINDING,
        }
        with UnitOfWork(self.records, writing=True) as work:
            work.session.add(Incident(**{**values, **changes}))

    def delivery(self, delivery_id: str, incident_id: str, **changes: object) -> None:
        values: dict[str, object] = {
            "id": delivery_id,
            "incident_id": incident_id,
            "event": "incident.opened",
            "channel": "webhook",
            "body": "{}",
            "created_at": self.now,
            "next_attempt_at": self.now,
        }
        with UnitOfWork(self.records, writing=True) as work:
            work.session.add(Delivery(**{**values, **changes}))


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setenv("FLIGHTWATCH_DATA", str(tmp_path))
    monkeypatch.delenv("FLIGHTWATCH_RECORDS_URL", raising=False)
    engine = open_engine(f"sqlite:///{tmp_path / 'records.sqlite'}")
    migrate_records(engine)
    yield Shelf(engine)
    engine.dispose()


@pytest.fixture
def flightwatch() -> Callable[..., int]:
    return lambda *arguments: main(arguments)
