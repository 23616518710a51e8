from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from sqlalchemy import Engine, select
from sqlalchemy.exc import DataError
from sqlalchemy.exc import OperationalError as LockedError

from collector.batch import Batch, join
from collector.decode import decode
from collector.epochs import EpochBook
from collector.errors import RefusedRowsError, StoreUnreachableError
from collector.registry import Registry
from collector.sink import StoreSink
from collector.store.records import Base, Rank, Run
from collector.store.records.session import UnitOfWork, open_engine
from flightwatch.wire import flightwatch_pb2 as wire
from wire_examples import EPOCH, START_UNIX_NS, a_frame


class FakeTelemetry:
    """Notes which tables got rows, and whether the rank was in the records store by then; may fail on one table."""

    def __init__(self, engine: Engine) -> None:
        self.inserted: list[str] = []
        self.ranks_known: list[int] = []
        self.ends_known: list[str] = []
        self.fails_on = ""
        self.error: Exception = OSError("away")
        self._engine = engine

    def insert(self, table: str, columns: Mapping[str, Any]) -> None:
        if table == self.fails_on:
            raise self.error
        with UnitOfWork(self._engine) as work:
            ranks = list(work.session.scalars(select(Rank)))
        self.ranks_known.append(len(ranks))
        self.ends_known += [rank.end for rank in ranks]
        self.inserted.append(table)


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path / 'records.sqlite'}")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def telemetry(engine: Engine) -> FakeTelemetry:
    return FakeTelemetry(engine)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sink(engine: Engine, telemetry: FakeTelemetry, clock: FakeClock) -> StoreSink:
    return StoreSink(telemetry, Registry(engine), clock=clock)


def a_batch(frame: wire.Frame | None = None) -> Batch:
    return join([decode(frame or a_frame(count=25), EpochBook(), now_ns=START_UNIX_NS)], ["node-0"])


def last_step(engine: Engine) -> int:
    with UnitOfWork(engine) as work:
        return work.session.scalars(select(Run.last_step)).one()


def test_rank_and_names_are_known_before_its_rows(sink: StoreSink, telemetry: FakeTelemetry) -> None:
    sink.write(a_batch())

    assert telemetry.inserted == ["op_names", "ops"]
    assert telemetry.ranks_known == [1, 1]


def test_end_is_entered_after_the_rows(engine: Engine, sink: StoreSink, telemetry: FakeTelemetry) -> None:
    frame = a_frame(count=25)
    frame.ends.add(epoch=EPOCH, how="clean", records_written=25, unix_ns=START_UNIX_NS)

    sink.write(a_batch(frame))

    assert set(telemetry.ends_known) == {""}
    with UnitOfWork(engine) as work:
        assert work.session.scalars(select(Rank.end)).one() == "clean"


def test_names_are_written_once(sink: StoreSink, telemetry: FakeTelemetry) -> None:
    sink.write(a_batch())
    sink.write(a_batch())

    assert telemetry.inserted == ["op_names", "ops", "ops"]


def test_names_are_written_again_if_their_insert_failed(sink: StoreSink, telemetry: FakeTelemetry) -> None:
    telemetry.fails_on = "op_names"
    with pytest.raises(OSError, match="away"):
        sink.write(a_batch())
    telemetry.fails_on = ""

    sink.write(a_batch())

    assert telemetry.inserted == ["op_names", "ops"]


@pytest.mark.parametrize(
    ("error", "is_of_the_rows"),
    [
        (DatabaseError("Code: 117. DB::Exception: no", code=117), True),
        (DatabaseError("Code: 241. DB::Exception: memory", code=241), False),
        (DatabaseError("no code"), False),
        (DataError("INSERT", {}, ValueError("NUL")), True),
        (LockedError("INSERT", {}, ValueError("database is locked")), False),
        (OverflowError("too large"), True),
        (StoreUnreachableError("away"), False),
        (OSError("away"), False),
    ],
)
def test_only_errors_of_what_rows_hold_refuse_them(
    sink: StoreSink, telemetry: FakeTelemetry, error: Exception, is_of_the_rows: bool
) -> None:
    telemetry.fails_on, telemetry.error = "ops", error

    with pytest.raises(RefusedRowsError if is_of_the_rows else type(error)):
        sink.write(a_batch())


def test_progress_is_entered_about_once_a_second(engine: Engine, sink: StoreSink, clock: FakeClock) -> None:
    sink.write(a_batch(a_frame(count=15)))
    assert last_step(engine) == 1
    clock.seconds = 0.5
    sink.write(a_batch(a_frame(count=95)))
    assert last_step(engine) == 1

    clock.seconds = 1.1
    sink.write(a_batch(a_frame(count=5)))

    assert last_step(engine) == 9


def test_flush_enters_progress_at_once(engine: Engine, sink: StoreSink, clock: FakeClock) -> None:
    sink.write(a_batch(a_frame(count=15)))
    sink.write(a_batch(a_frame(count=95)))

    sink.flush()

    assert last_step(engine) == 9
