"""The verb analytics as a process: real stores, a real receiver, and a job whose rows come in while it watches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, update
from standardwebhooks.webhooks import Webhook

from collector.settings import Settings
from collector.store.migrate import migrate_all, migrate_records
from collector.store.records import Delivery, Incident, Rank, Run
from collector.store.records.session import UnitOfWork, open_engine
from collector.store.telemetry.client import TelemetryClient, connect
from flightwatch._ops import Op

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
N_RANKS = 4
STEP_NS = 500_000_000


@pytest.fixture
def store_url(tmp_path: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "flightwatch", "store", "--listen", "127.0.0.1:0", "--data", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    yield line.partition("listens on ")[2].partition(",")[0]
    process.terminate()
    process.wait(30)


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield an address and the messages that it took, each id once: what is sent at least once may come twice."""
    messages: list[dict[str, Any]] = []
    ids: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            message = Webhook(SECRET).verify(body, dict(self.headers.items()))
            if self.headers["webhook-id"] not in ids:
                ids.add(self.headers["webhook-id"])
                messages.append(message)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", messages
    server.shutdown()
    server.server_close()


class Watcher:
    """The verb as a process. It logs into a file, which cannot fill up as a pipe does."""

    def __init__(self, log: Path, environment: dict[str, str], *arguments: str) -> None:
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flightwatch", "analytics", *arguments],
                env={**os.environ, **environment},
                stderr=file,
            )

    def ended(self, timeout: float) -> tuple[int, str]:
        """Wait for its end, and return its exit code and what it logged."""
        return self.process.wait(timeout), self.log.read_text()


@pytest.fixture
def watch() -> Iterator[Callable[..., Watcher]]:
    """Start watchers; none outlives its test, however that ends."""
    started: list[Watcher] = []

    def start(log: Path, environment: dict[str, str], *arguments: str) -> Watcher:
        started.append(Watcher(log, environment, *arguments))
        return started[-1]

    yield start
    for watcher in started:
        watcher.process.kill()
        watcher.process.wait(10)


class Job:
    """Writes into both stores what a collector would."""

    def __init__(self, settings: Settings) -> None:
        self.client: TelemetryClient = connect(settings.store_url)
        self.records = open_engine(settings.records_url)
        self.start = datetime.now(UTC).replace(microsecond=0)
        self.noise = np.random.default_rng(0)
        self.written = 0
        self.ops = {"forward": Op("forward", "block"), "step": Op("step", "step")}
        with UnitOfWork(self.records, writing=True) as work:
            work.session.add(Run(id="run-1", started_at=self.start, last_seen_at=self.start, world_size=N_RANKS))
            work.session.flush()
            for rank in range(N_RANKS):
                work.session.add(
                    Rank(
                        epoch=f"{rank + 1:016x}",
                        run_id="run-1",
                        rank=rank,
                        world_size=N_RANKS,
                        node="n0",
                        coordinates={"dp": rank},
                        sources={},
                        clock_offset_ns=0,
                        started_at=self.start,
                    )
                )
        names = list(self.ops.values())
        self.client.insert(
            "op_names",
            {
                "run": ["run-1"] * 2,
                "op": np.array([op.key for op in names], dtype=np.uint64),
                "kind": [op.kind for op in names],
                "name": [op.name for op in names],
                "module": [""] * 2,
                "process_group": [""] * 2,
                "members": [[], []],
                "dtype": [""] * 2,
                "size_class": np.zeros(2, dtype=np.uint8),
                "backend": [""] * 2,
            },
        )

    def play(self, steps: range, *, slow_rank: int | None = None) -> None:
        for kind, op in self.ops.items():
            rank, step = (grid.ravel() for grid in np.meshgrid(np.arange(N_RANKS), np.array(steps)))
            seconds = (
                0.2 * self.noise.lognormal(0.0, 0.05, len(rank)) if kind == "forward" else np.full(len(rank), 0.45)
            )
            if slow_rank is not None and kind == "forward":
                seconds[rank == slow_rank] *= 1.5
            numbers = self.written + np.arange(len(rank))
            self.written += len(rank)
            self.client.insert(
                "ops",
                {
                    "run": ["run-1"] * len(rank),
                    "op": np.full(len(rank), op.key, dtype=np.uint64),
                    "step": step.astype(np.uint32),
                    "rank": rank.astype(np.uint32),
                    "epoch": (rank + 1).astype(np.uint64),
                    "record": numbers.astype(np.uint64),
                    "start_ns": int(self.start.timestamp()) * 10**9 + step.astype(np.int64) * STEP_NS,
                    "value": (seconds * 1e9).astype(np.int64),
                    "seq": np.zeros(len(rank), dtype=np.uint32),
                    "micro": np.zeros(len(rank), dtype=np.uint32),
                },
            )
        with UnitOfWork(self.records, writing=True) as work:
            work.session.execute(update(Run).values(last_seen_at=datetime.now(UTC), last_step=steps[-1]))

    def play_until(
        self, first: int, condition: Callable[[], Any], watched_by: Watcher, *, slow_rank: int | None = None
    ) -> int:
        """Play four steps at a time until the condition holds, and return the next step."""
        for step in range(first, first + 2000, 4):
            self.play(range(step, step + 4), slow_rank=slow_rank)
            if condition():
                return step + 4
            if watched_by.process.poll() is not None:
                break
            time.sleep(0.3)
        raise AssertionError(
            f"played steps {first} to {step + 3} in vain; analytics (exit code {watched_by.process.poll()}) says:\n"
            f"{watched_by.log.read_text()}"
        )

    def incidents(self) -> list[Incident]:
        with UnitOfWork(self.records) as work:
            return list(work.session.scalars(select(Incident)))

    def close(self) -> None:
        self.client.close()
        self.records.dispose()


def test_a_slow_rank_is_told_when_it_comes_and_when_it_goes_across_a_kill(
    tmp_path: Path,
    store_url: str,
    receiver: tuple[str, list[dict[str, Any]]],
    watch: Callable[..., Watcher],
) -> None:
    hook, messages = receiver
    (tmp_path / "secret").write_text(SECRET + "\n")
    environment = {
        "FLIGHTWATCH_DATA": str(tmp_path),
        "FLIGHTWATCH_STORE_URL": store_url,
        "FLIGHTWATCH_WEBHOOK_URL": hook,
        "FLIGHTWATCH_WEBHOOK_SECRET_FILE": str(tmp_path / "secret"),
        "FLIGHTWATCH_PUBLIC_URL": "http://fw:8460",
    }
    settings = Settings.from_environment(environment)
    migrate_all(settings)
    job = Job(settings)
    job.play(range(0, 60))

    analytics = watch(tmp_path / "first.log", environment)
    step = job.play_until(60, lambda: messages, analytics, slow_rank=2)
    analytics.process.kill()  # no time to say goodbye
    analytics.ended(10)
    restarted = watch(tmp_path / "second.log", environment)
    job.play_until(step, lambda: len(messages) == 2, restarted)
    with UnitOfWork(job.records) as work:
        states = list(work.session.scalars(select(Delivery.state)))
        revision = work.session.scalars(select(Run.revision)).one()
    restarted.process.send_signal(signal.SIGTERM)
    code, log = restarted.ended(20)
    (incident,) = job.incidents()
    job.close()

    assert code == 0, log
    assert [message["type"] for message in messages] == ["incident.opened", "incident.resolved"]
    assert messages[0]["data"]["entity"] == "rank:2"
    assert messages[0]["data"]["url"] == f"http://fw:8460/ui/incidents/{incident.id}"
    assert (incident.kind, incident.cause, incident.entity, incident.state) == (
        "slow_rank",
        "compute",
        "rank:2",
        "resolved",
    )
    assert states in (["sent", "sent"], ["sent", "pending"])  # the second may be answered and not yet written down
    assert revision > 2


def test_a_store_that_does_not_come_is_exit_code_2_after_the_wait(
    tmp_path: Path, watch: Callable[..., Watcher]
) -> None:
    environment = {"FLIGHTWATCH_DATA": str(tmp_path), "FLIGHTWATCH_STORE_URL": "http://127.0.0.1:9"}
    records = open_engine(f"sqlite:///{tmp_path / 'records.sqlite'}")
    migrate_records(records)
    records.dispose()

    code, log = watch(tmp_path / "log", environment, "--wait", "0.1").ended(60)

    assert code == 2
    assert log.splitlines()[-1].startswith("flightwatch: the telemetry store does not answer at http://127.0.0.1:9")


def test_a_store_of_another_schema_is_exit_code_2_at_once(tmp_path: Path, watch: Callable[..., Watcher]) -> None:
    code, log = watch(tmp_path / "log", {"FLIGHTWATCH_DATA": str(tmp_path)}).ended(60)

    assert code == 2
    assert "run `flightwatch migrate`" in log


def test_a_webhook_without_a_secret_is_exit_code_2(tmp_path: Path, watch: Callable[..., Watcher]) -> None:
    environment = {"FLIGHTWATCH_DATA": str(tmp_path), "FLIGHTWATCH_WEBHOOK_URL": "http://127.0.0.1:9/"}
    code, log = watch(tmp_path / "log", environment).ended(60)

    assert code == 2
    assert "FLIGHTWATCH_WEBHOOK_SECRET_FILE" in log
