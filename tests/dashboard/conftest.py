from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from collector.store.records.session import open_engine
from dashboard_scene import SimulatedTelemetry, empty_records, seed_incident, seed_run


@pytest.fixture
def empty_engine(tmp_path: Path) -> Iterator[Engine]:
    engine = empty_records(tmp_path)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeded")
    engine = empty_records(folder)
    seed_run(engine)
    seed_incident(engine)
    engine.dispose()  # the last connection folds the write-ahead log into the file
    return folder / "records.sqlite"


@pytest.fixture
def engine(seeded: Path, tmp_path: Path) -> Iterator[Engine]:
    """Records of one running job of 1,024 ranks with an open incident on node-0009."""
    shutil.copy(seeded, tmp_path / "seeded.sqlite")
    engine = open_engine(f"sqlite:///{tmp_path / 'seeded.sqlite'}")
    yield engine
    engine.dispose()


@pytest.fixture
def telemetry() -> SimulatedTelemetry:
    return SimulatedTelemetry()
