from __future__ import annotations

import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.exc import IntegrityError

from collector.errors import SchemaMismatchError, StoreUnreachableError
from collector.store.records import Node, Rank, Run
from collector.store.records.session import UnitOfWork, check_schema, open_engine
from flightwatch.errors import FlightwatchError

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def test_commits_at_the_end_and_stays_readable(records_engine: Engine) -> None:
    with UnitOfWork(records_engine, writing=True) as work:
        node = Node(name="n1", first_seen_at=NOON, last_seen_at=NOON)
        work.session.add(node)

    with UnitOfWork(records_engine) as work:
        assert work.session.get(Node, "n1") is not None
    assert node.first_seen_at == NOON


def test_directory_that_it_makes_is_its_owners(tmp_path: Path) -> None:
    open_engine(f"sqlite:///{tmp_path / 'data' / 'records.sqlite'}")

    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_rolls_back_when_its_block_raises(records_engine: Engine) -> None:
    def fail() -> None:
        with UnitOfWork(records_engine, writing=True) as work:
            work.session.add(Node(name="n1", first_seen_at=NOON, last_seen_at=NOON))
            work.session.flush()
            raise LookupError

    with pytest.raises(LookupError):
        fail()

    with UnitOfWork(records_engine) as work:
        assert work.session.scalars(select(Node)).all() == []


def test_concurrent_writers_that_read_first_do_not_fail(records_engine: Engine) -> None:
    with UnitOfWork(records_engine, writing=True) as work:
        work.session.add(Run(id="r", started_at=NOON, last_seen_at=NOON))

    def count_up() -> None:
        for _ in range(20):
            with UnitOfWork(records_engine, writing=True) as work:
                run = work.session.get_one(Run, "r")
                run.revision += 1

    writers = [threading.Thread(target=count_up) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    with UnitOfWork(records_engine) as work:
        assert work.session.get_one(Run, "r").revision == 60


def test_a_reader_sees_the_old_state_beside_a_writer(records_engine: Engine) -> None:
    with UnitOfWork(records_engine, writing=True) as writing:
        writing.session.add(Node(name="n1", first_seen_at=NOON, last_seen_at=NOON))
        writing.session.flush()
        with UnitOfWork(records_engine) as reading:
            assert reading.session.get(Node, "n1") is None


def test_sqlite_is_durable_and_keeps_its_references(records_engine: Engine) -> None:
    with records_engine.connect() as connection:
        pragmas = ("journal_mode", "synchronous")
        found = {name: connection.execute(text(f"PRAGMA {name}")).scalar_one() for name in pragmas}
    with pytest.raises(IntegrityError), UnitOfWork(records_engine, writing=True) as work:
        work.session.add(
            Rank(
                epoch="0" * 16,
                run_id="nobody",
                rank=0,
                world_size=1,
                node="n",
                coordinates={},
                sources={},
                clock_offset_ns=0,
                started_at=NOON,
            )
        )

    assert found == {"journal_mode": "wal", "synchronous": 2}


def test_makes_the_directory_of_the_file(tmp_path: Path) -> None:
    open_engine(f"sqlite:///{tmp_path / 'a' / 'b' / 'records.sqlite'}").connect().close()

    assert (tmp_path / "a" / "b" / "records.sqlite").exists()


@pytest.mark.parametrize(("url", "line"), [("nonsense", "is not a URL"), ("mysql://h/d", "'mysql' is not supported")])
def test_refuses_other_urls(url: str, line: str) -> None:
    with pytest.raises(FlightwatchError, match=line):
        open_engine(url)


def test_accepts_its_own_schema(records_engine: Engine) -> None:
    check_schema(records_engine)

    with records_engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "0001"


def test_refuses_an_empty_store(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatchError, match=r"is at version 0, .* run `flightwatch migrate`"):
        check_schema(open_engine(f"sqlite:///{tmp_path / 'records.sqlite'}"))


def test_refuses_a_newer_store(records_engine: Engine) -> None:
    with records_engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(SchemaMismatchError, match=r"is at version 9999, .* upgrade flightwatch"):
        check_schema(records_engine)


def test_says_in_one_line_that_a_store_cannot_be_opened() -> None:
    engine = open_engine("postgresql://someone:secret@127.0.0.1:1/records")

    with pytest.raises(StoreUnreachableError) as caught:
        check_schema(engine)

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
