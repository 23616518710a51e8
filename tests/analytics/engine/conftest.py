"""A job, its stores and a clock, all in memory or in a temporary directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import Engine as RecordsEngine
from sqlalchemy import event, select, update

from analytics.engine import Engine
from analytics.findings import Finding
from analytics.incidents.book import Book
from analytics.window import Window
from collector.errors import StoreUnreachableError
from collector.store.records import Base, Delivery, Incident, Rank, Run, StoredFinding
from collector.store.records.session import UnitOfWork, open_engine

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
UNIX_NS = int(EPOCH.timestamp() * 1e9)
RUN = "run-1"


class FakeClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def utc(self) -> datetime:
        return EPOCH + timedelta(seconds=self.seconds)


class FakeTelemetry:
    """A store of one job's steps. `reached[rank]` is the newest step that has arrived of a rank, -1 none."""

    def __init__(self, n_ranks: int) -> None:
        self.reached = np.full(n_ranks, -1, dtype=np.int64)
        self.slow: dict[int, range] = {}
        self.is_away = False
        self.asked: list[tuple[int, int]] = []

    def advance_to(self, step: int) -> None:
        self.reached[:] = step

    def rank_steps(self, run: str, *, first_step: int, since_ns: int) -> pa.Table:
        self._answer()
        known = np.flatnonzero(self.reached >= max(first_step, 0))
        assert since_ns == UNIX_NS
        return pa.table({"rank": known, "last_step": self.reached[known]})

    def step_phases(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        self._answer()
        self.asked.append((first_step, last_step))
        steps = np.arange(first_step, last_step + 1)
        rank, step = (grid.ravel() for grid in np.meshgrid(np.arange(len(self.reached)), steps, indexing="ij"))
        arrived = step <= self.reached[rank]
        rank, step = rank[arrived], step[arrived]
        seconds = np.full(len(rank), 0.1)
        for slow, span in self.slow.items():
            seconds[(rank == slow) & (step >= span.start) & (step < span.stop)] = 0.2
        return pa.table(
            {
                "rank": rank,
                "step": step,
                "micro": np.zeros(len(rank), int),
                "phase": pa.array(["forward"] * len(rank)),
                "seconds": seconds,
                "start_ns": UNIX_NS + step,
                "n": np.ones(len(rank), int),
            }
        )

    def _answer(self) -> None:
        if self.is_away:
            raise StoreUnreachableError("the telemetry store does not answer at http://nowhere")


class SlowRankDetector:
    """Names each rank that took 1.5 times the median over the last `recent` steps of the window. Keeps what it saw."""

    name = "slow/1"

    def __init__(self, recent: int = 20) -> None:
        self.recent = recent
        self.windows: list[tuple[int, int, int]] = []

    def detect(self, window: Window) -> list[Finding]:
        seconds = window.per_step("forward")
        self.windows.append((int(window.steps[0]), int(window.steps[-1]), int(np.isnan(seconds).sum())))
        own = np.nanmedian(seconds[:, -self.recent :], axis=1)
        slow = np.flatnonzero(own > 1.5 * np.nanmedian(own))
        return [self._finding(window, int(window.topology.ranks[row]), window.topology.nodes[row]) for row in slow]

    def _finding(self, window: Window, rank: int, node: str) -> Finding:
        return Finding(
            id=f"{rank}",
            kind="slow_rank",
            cause="compute",
            ranks=(rank,),
            nodes=(node,),
            entity=f"rank:{rank}",
            severity="warning",
            first_step=int(window.steps[0]),
            last_step=int(window.steps[-1]),
            confidence=0.9,
            summary=f"rank {rank} is slow",
            next="look at it",
            detector="slow/1",
        )


class Job:
    """One run in the stores, and the engines that watch it."""

    def __init__(self, records: RecordsEngine, n_ranks: int, ranks_per_node: int) -> None:
        self.records = records
        self.clock = FakeClock()
        self.telemetry = FakeTelemetry(n_ranks)
        self.detector = SlowRankDetector()
        self.ranks_per_node = ranks_per_node
        with UnitOfWork(records, writing=True) as work:
            work.session.add(Run(id=RUN, started_at=EPOCH, last_seen_at=EPOCH, world_size=n_ranks))
            work.session.flush()
        self.start_attempt(0)
        self.engine = self.new_engine()

    def start_attempt(self, attempt: int) -> None:
        with UnitOfWork(self.records, writing=True) as work:
            work.session.add_all(
                Rank(
                    epoch=f"{attempt:08x}{rank:08x}",
                    run_id=RUN,
                    attempt=attempt,
                    rank=rank,
                    world_size=len(self.telemetry.reached),
                    node=f"n{rank // self.ranks_per_node}",
                    coordinates={"dp": rank},
                    sources={},
                    clock_offset_ns=0,
                    started_at=EPOCH,
                )
                for rank in range(len(self.telemetry.reached))
            )

    def new_engine(self, detectors: Sequence[object] = (), *, steps_kept: int = 40) -> Engine:
        book = Book(self.records, clock=self.clock.utc, channels=["webhook"], public_url="http://fw")
        return Engine(
            records=self.records,
            telemetry=self.telemetry,
            detectors=detectors or [self.detector],  # type: ignore[arg-type]  # fakes
            book=book,
            steps_kept=steps_kept,
            monotonic=self.clock.monotonic,
        )

    def tick(self, seconds: float = 1.0) -> int:
        self.clock.seconds += seconds
        with UnitOfWork(self.records, writing=True) as work:
            work.session.execute(update(Run).values(last_seen_at=self.clock.utc()))
        return self.engine.tick()

    def play(self, steps: range) -> None:
        for step in steps:
            self.telemetry.advance_to(step)
            self.tick()

    def end(self) -> None:
        with UnitOfWork(self.records, writing=True) as work:
            work.session.execute(update(Rank).values(ended_at=self.clock.utc(), end="closed"))
            work.session.execute(update(Run).values(state="ended", ended_at=self.clock.utc()))

    def incidents(self) -> list[Incident]:
        with UnitOfWork(self.records) as work:
            return list(work.session.scalars(select(Incident).order_by(Incident.id)))

    def findings(self) -> list[StoredFinding]:
        with UnitOfWork(self.records) as work:
            return list(work.session.scalars(select(StoredFinding).order_by(StoredFinding.id)))

    def deliveries(self) -> list[Delivery]:
        with UnitOfWork(self.records) as work:
            return list(work.session.scalars(select(Delivery).order_by(Delivery.created_at)))

    def revision(self) -> int:
        with UnitOfWork(self.records) as work:
            return work.session.scalars(select(Run.revision)).one()


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordsEngine]:
    engine = open_engine(f"sqlite:///{tmp_path / 'records.sqlite'}")
    # nothing here survives a power cut anyway, and thousands of transactions would wait for the disk
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def new_job(records: RecordsEngine) -> Callable[..., Job]:
    return lambda n_ranks=8, ranks_per_node=4: Job(records, n_ranks, ranks_per_node)


@pytest.fixture
def job(new_job: Callable[..., Job]) -> Job:
    return new_job()
