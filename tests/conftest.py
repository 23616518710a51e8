from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine


@pytest.fixture(scope="session")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real, migrated telemetry store, shared by the whole session: give each test a run id of its own."""
    from store_process import StoreProcess  # chDB is large: only sessions that want a store pay for it

    with StoreProcess(tmp_path_factory.mktemp("store")) as store:
        yield store.migrate().url


@pytest.fixture
def records_engine(tmp_path: Path) -> Iterator[Engine]:
    """A migrated records store in SQLite, for one test."""
    from collector.store.migrate import migrate_records
    from collector.store.records.session import open_engine

    engine = open_engine(f"sqlite:///{tmp_path / 'records.sqlite'}")
    migrate_records(engine)
    yield engine
    engine.dispose()
