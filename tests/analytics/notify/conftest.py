"""A real receiver on loopback, a records store with one incident, and a clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy import Engine, select
from standardwebhooks.webhooks import Webhook

from analytics.notify.message import OPENED, RESOLVED, body_of
from collector.store.records import Base, Delivery, Incident, Run
from collector.store.records.session import UnitOfWork, open_engine

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # of the Standard Webhooks specification's example
Answer = tuple[int, dict[str, str]]


class Receiver:
    """Answers with what `answers` holds, first to last, then with 204; `received` are the verified bodies."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.ids: list[str] = []
        self.received: list[dict[str, object]] = []
        self.refused: list[str] = []
        self.hold = threading.Event()
        self.hold.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.hold.wait(30)
                receiver.ids.append(self.headers["webhook-id"])
                try:
                    receiver.received.append(Webhook(SECRET).verify(body, dict(self.headers.items())))
                except Exception as error:
                    receiver.refused.append(repr(error))
                status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


class FakeClock:
    """UTC that moves when told."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path / 'records.sqlite'}")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def new_incident(now: datetime, **changes: object) -> Incident:
    finding = {
        "entity": "rank:2",
        "started_at": "2026-01-01T00:00:00+00:00",
        "cost": {"slowdown": 1.4, "wasted_accelerator_hours": 0.2},
        "evidence": [
            {"kind": "ratio", "text": "forward takes 1.5 times its peers'", "value": 1.5, "unit": "", "baseline": 1.0}
        ],
        "next": "Drain node n0.",
        "evict": False,
    }
    values: dict[str, object] = {
        "id": "01INCIDENT",
        "run_id": "run-1",
        "kind": "slow_rank",
        "cause": "compute",
        "entity": "rank:2",
        "severity": "warning",
        "state": "firing",
        "opened_at": now,
        "updated_at": now,
        "opened_step": 110,
        "first_step": 100,
        "last_step": 110,
        "ranks": [2],
        "nodes": ["n0"],
        "summary": "Rank 2 computes 1.5 times slower than its peers.",
        "confidence": 0.97,
        "slowdown": 1.4,
        "finding": finding,
    }
    return Incident(**{**values, **changes})


@pytest.fixture
def make_incident() -> Callable[..., Incident]:
    return new_incident


class Box:
    """The outbox's table, filled and read."""

    def __init__(self, records: Engine, clock: FakeClock) -> None:
        self.records = records
        self.clock = clock
        with UnitOfWork(records, writing=True) as work:
            work.session.add(Run(id="run-1", started_at=clock(), last_seen_at=clock()))
            work.session.flush()
            work.session.add(new_incident(clock()))

    def post(self, event: str, delivery_id: str) -> None:
        with UnitOfWork(self.records, writing=True) as work:
            incident = work.session.get_one(Incident, "01INCIDENT")
            work.session.add(
                Delivery(
                    id=delivery_id,
                    incident_id=incident.id,
                    event=event,
                    channel="webhook",
                    body=body_of(incident, event, at=self.clock(), public_url="http://fw:8460"),
                    created_at=self.clock(),
                    next_attempt_at=self.clock(),
                )
            )

    def post_both(self) -> None:
        self.post(OPENED, "msg_1")
        self.clock.pass_(1)
        self.post(RESOLVED, "msg_2")

    def rows(self) -> dict[str, Delivery]:
        with UnitOfWork(self.records) as work:
            return {row.id: row for row in work.session.scalars(select(Delivery))}

    def states(self) -> dict[str, str]:
        return {key: row.state for key, row in self.rows().items()}


@pytest.fixture
def box(records: Engine, clock: FakeClock) -> Box:
    return Box(records, clock)
