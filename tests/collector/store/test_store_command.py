"""The verb `store` as a process: how it starts, refuses, stops, and what a kill leaves."""

from __future__ import annotations

import signal
import socket
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from collector.store.telemetry.client import connect
from flightwatch.errors import FlightwatchError
from store_process import StoreProcess, start_store


def test_refuses_a_port_in_use_with_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start_store(f"127.0.0.1:{port}", tmp_path)
        output, _ = process.communicate(timeout=60)

    assert process.returncode == 2
    assert output.startswith(f"flightwatch: port {port} on 127.0.0.1 is in use")
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    ("listen", "line"),
    [("0.0.0.0:0", "serves loopback only"), ("127.0.0.1", "is not HOST:PORT"), ("127.0.0.1:99999", "is not HOST:PORT")],
)
def test_refuses_other_addresses(tmp_path: Path, listen: str, line: str) -> None:
    process = start_store(listen, tmp_path)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 2
    assert line in output


def test_refuses_data_that_another_store_has_open(tmp_path: Path) -> None:
    with StoreProcess(tmp_path) as store:
        second = start_store("127.0.0.1:0", tmp_path)
        output, _ = second.communicate(timeout=60)

        assert second.returncode == 2
        assert f"is already open in process {store.process.pid}" in output
        assert output.count("\n") == 1


def test_stops_cleanly_and_keeps_its_data(tmp_path: Path) -> None:
    store = StoreProcess(tmp_path)
    store.start()
    store.migrate()
    _insert(store.url, "kept", 10, 0)

    assert store.stop(signal.SIGTERM) == 0

    assert stat.S_IMODE((tmp_path / "telemetry").stat().st_mode) == 0o700
    with store:
        assert _count(store.url, "kept") == 10
    assert list((tmp_path / "uploads").iterdir()) == []


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    store = StoreProcess(tmp_path)
    store.start()
    store.migrate()
    acknowledged: list[int] = []
    enough = threading.Event()

    def insert_until_killed() -> None:
        for batch in range(10_000):
            try:
                _insert(store.url, "killed", 1000, batch)
            except FlightwatchError:
                return
            acknowledged.append(batch)
            if batch == 5:
                enough.set()

    writer = threading.Thread(target=insert_until_killed)
    writer.start()
    assert enough.wait(60)
    store.stop(signal.SIGKILL)
    writer.join()

    with store:
        stored = connect(store.url).query(
            "SELECT step, count() AS rows FROM ops FINAL WHERE run = 'killed' GROUP BY step ORDER BY step"
        )
    rows = dict(zip(stored["step"].to_pylist(), stored["rows"].to_pylist(), strict=True))
    assert set(acknowledged) <= set(rows), "acknowledged batches are all there"
    assert set(rows.values()) == {1000}, "no batch is torn"


def _insert(url: str, run: str, n_rows: int, step: int) -> None:
    connect(url).insert(
        "ops",
        {
            "run": (np.zeros(n_rows, np.int32), [run]),
            "op": np.ones(n_rows, np.uint64),
            "step": np.full(n_rows, step, np.uint32),
            "rank": np.zeros(n_rows, np.uint32),
            "epoch": np.ones(n_rows, np.uint64),
            "record": np.arange(n_rows, dtype=np.uint64),
            "start_ns": np.arange(n_rows) + 1_796_000_000_000_000_000,
            "value": np.ones(n_rows, np.int64),
            "seq": np.zeros(n_rows, np.uint32),
            "micro": np.zeros(n_rows, np.uint32),
        },
    )


def _count(url: str, run: str) -> int:
    found = connect(url).query("SELECT count() AS n FROM ops FINAL WHERE run = {run:String}", {"run": run})
    return int(found["n"][0].as_py())
