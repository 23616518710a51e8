from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

import postgres_server
from collector.errors import SchemaMismatchError
from collector.settings import Settings
from collector.store.migrate import Migrated, check_all, migrate_all, migrate_records
from collector.store.records import Base, Incident, Run
from collector.store.records.session import UnitOfWork, open_engine, record_scripts
from collector.store.telemetry.client import connect
from collector.store.telemetry.migrations import migrate_telemetry
from collector.store.telemetry.scripts import scripts, split_statements
from store_process import StoreProcess

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Engine]:
    if reason := postgres_server.missing():
        pytest.skip(reason)
    with postgres_server.postgres_url() as url:
        engine = open_engine(url)
        yield engine
        engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        engine = open_engine(f"sqlite:///{tmp_path / 'empty.sqlite'}")
        yield engine
        engine.dispose()
    else:
        engine = request.getfixturevalue("postgres")
        yield engine
        migrate_records(engine, "base")


def test_records_go_up_and_down_and_up_again(empty_engine: Engine) -> None:
    up = migrate_records(empty_engine)
    tables = set(inspect(empty_engine).get_table_names())
    down = migrate_records(empty_engine, "base")
    left = set(inspect(empty_engine).get_table_names())
    migrate_records(empty_engine)

    assert (up.before, down.after) == ("0", "0")
    assert tables == {*Base.metadata.tables, "alembic_version"}
    assert left == {"alembic_version"}
    assert migrate_records(empty_engine) == Migrated("records", up.after, up.after)


def test_each_revision_can_be_taken_back(empty_engine: Engine) -> None:
    for script in reversed(list(record_scripts().walk_revisions())):
        migrate_records(empty_engine, script.revision)
        migrate_records(empty_engine, str(script.down_revision or "base"))

        assert migrate_records(empty_engine, script.revision).after == script.revision


def test_migrated_records_are_what_the_classes_say(empty_engine: Engine) -> None:
    migrate_records(empty_engine)

    with empty_engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_records_come_back_as_they_were_stored(empty_engine: Engine) -> None:
    migrate_records(empty_engine)
    incident = {"kind": "slow_rank", "cause": "compute", "entity": "rank:2", "severity": "critical"}
    steps = {"opened_step": 2**40, "first_step": 1, "last_step": 2}
    with UnitOfWork(empty_engine, writing=True) as work:
        work.session.add(Run(id="r", started_at=NOON, last_seen_at=NOON))
        work.session.flush()
        work.session.add(
            Incident(
                id="i",
                run_id="r",
                opened_at=NOON,
                updated_at=NOON,
                ranks=[2],
                nodes=["n"],
                summary="rank 2 is slow",
                confidence=0.1,
                finding={"evidence": [{"value": 1.5}]},
                **incident,
                **steps,
            )
        )

    with UnitOfWork(empty_engine) as work:
        found = work.session.get_one(Incident, "i")
        stored = (found.opened_at, found.opened_step, found.ranks, found.confidence, found.finding, found.resolved_at)
    assert stored == (NOON, 2**40, [2], 0.1, {"evidence": [{"value": 1.5}]}, None)


def test_a_newer_records_store_is_left_alone(records_engine: Engine) -> None:
    with records_engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(SchemaMismatchError, match="upgrade flightwatch"):
        migrate_records(records_engine)


def test_telemetry_scripts_are_numbered_without_holes() -> None:
    assert [script.version for script in scripts()] == list(range(1, len(scripts()) + 1))


def test_every_table_says_that_returned_means_on_disk() -> None:
    created = [sql for script in scripts() for sql in script.statements if sql.startswith("CREATE TABLE")]

    assert len(created) == 5
    for sql in created:
        assert re.search(r"SETTINGS fsync_after_insert = 1, fsync_part_directory = 1$", sql)


def test_statements_are_split_and_bare_of_comments() -> None:
    assert split_statements("-- one; two\nSELECT 1; -- three\n\nSELECT 2\n;\n") == ("SELECT 1", "SELECT 2")


def test_both_stores_are_migrated_once_and_checked(tmp_path: Path) -> None:
    with StoreProcess(tmp_path) as store:
        settings = Settings(tmp_path, store_url=store.url, records_url=f"sqlite:///{tmp_path / 'records.sqlite'}")
        with pytest.raises(SchemaMismatchError, match="run `flightwatch migrate`"):
            check_all(settings)

        first = migrate_all(settings)
        again = migrate_all(settings)
        check_all(settings)

    assert [done.before for done in first] == ["0", "0"]
    assert [done.before for done in again] == [done.after for done in first]


def test_a_newer_telemetry_store_is_left_alone(tmp_path: Path) -> None:
    with StoreProcess(tmp_path) as store:
        client = connect(store.migrate().url)
        client.insert("schema_migrations", {"version": np.array([9999], np.uint32)})

        with pytest.raises(SchemaMismatchError, match=r"is at version 9999, .* upgrade flightwatch"):
            migrate_telemetry(client)
