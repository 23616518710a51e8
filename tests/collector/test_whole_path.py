"""From rings to rows: the agent's own writers, the real forwarder, collector and stores, each a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.store.telemetry.client import TelemetryClient, connect

# A rank as the agent's own writer makes it. It stops before its last quarter until the file `go` is there, so that what
# the test breaks, it breaks in mid-stream, however slow the machine.
WRITER = """
import os, sys, time
from flightwatch._ops import Op
from flightwatch._ring import RingWriter
directory, rank, count, per_second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
identity = {"run": "whole-path", "run_name": "", "attempt": 0, "rank": rank, "world_size": 3, "local_rank": rank,
            "node": "node-0", "coordinates": {"dp": rank}, "sources": {}, "framework": "none"}
ring = RingWriter(directory, identity, epoch=(1 << 63) + rank)
ring.append_name(1, Op("forward", "layers.0"))
began = time.monotonic()
for number in range(count):
    ring.write(1, number // 100, time.monotonic_ns(), number)
    while number == count * 3 // 4 and not os.path.exists(directory + "/go"):
        time.sleep(0.05)
    if number % 50 == 49:
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))
if rank != 2:
    ring.close()
"""
FLIGHTWATCH = [sys.executable, "-m", "flightwatch"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], object], what: str, seconds: float = 100.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)


class Site:
    """A server's data, a node's directory, and the processes between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        store, self.collector_port = free_port(), free_port()
        self.store_url = f"http://127.0.0.1:{store}"
        self.node = folder / "node"
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("FLIGHTWATCH")},
            "FLIGHTWATCH_DATA": str(folder / "data"),
            "FLIGHTWATCH_DIR": str(self.node),
            "FLIGHTWATCH_STORE_URL": self.store_url,
            "FLIGHTWATCH_COLLECTOR": f"127.0.0.1:{self.collector_port}",
        }
        self.start("store", "--listen", f"127.0.0.1:{store}")
        until(lambda: _listens(store), "the store")
        subprocess.run(
            [*FLIGHTWATCH, "migrate"], env=self.environment, check=True, timeout=60, stdout=subprocess.DEVNULL
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        log = (self.folder / f"{arguments[0]}.log").open("a")
        process = subprocess.Popen([*FLIGHTWATCH, *arguments], env=self.environment, text=True, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def start_collector(self) -> subprocess.Popen[str]:
        process = self.start("collector")
        until(lambda: _listens(self.collector_port), "the collector")
        return process

    def start_rank(self, rank: int, count: int, per_second: float) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", WRITER, str(self.node), str(rank), str(count), str(per_second)]
        process = subprocess.Popen(arguments, env=self.environment, text=True)
        self.processes.append(process)
        return process

    def let_ranks_finish(self) -> None:
        (self.node / "go").touch()

    def log(self, verb: str) -> str:
        return (self.folder / f"{verb}.log").read_text()

    def client(self) -> TelemetryClient:
        return connect(self.store_url)

    def records(self, sql: str) -> list[tuple[object, ...]]:
        with sqlite3.connect(self.folder / "data" / "records.sqlite") as store:
            return store.execute(sql).fetchall()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    for process in site.processes:
        process.kill()
        process.wait()


def test_no_record_is_lost_or_doubled_when_the_collector_is_killed_in_mid_stream(site: Site) -> None:
    collector = site.start_collector()
    forwarder = site.start("forward", "--linger", "0", "--drain", "300")
    ranks = [site.start_rank(rank, 4000, 1000.0) for rank in range(3)]
    client = site.client()

    def count() -> int:
        return int(client.query("SELECT count() AS n FROM ops").column("n")[0].as_py())

    until(lambda: count() > 1000, "the first rows")

    collector.kill()
    collector.wait()
    site.let_ranks_finish()
    assert [rank.wait(60) for rank in ranks] == [0, 0, 0]
    site.start_collector()

    assert forwarder.wait(60) == 0, site.log("forward")
    found = client.query(
        "SELECT rank, count() AS n, uniqExact(record) AS distinct_records, max(record) AS last, sum(value) AS total "
        "FROM ops FINAL GROUP BY rank ORDER BY rank"
    ).to_pylist()
    assert [list(row.values()) for row in found] == [[rank, 4000, 4000, 3999, 3999 * 4000 // 2] for rank in range(3)]
    assert list((site.node / "rings").iterdir()) == []
    assert site.records("SELECT rank, end, records_written FROM ranks ORDER BY rank") == [
        (0, "clean", 4000),
        (1, "clean", 4000),
        (2, "lost", 4000),
    ]
    assert site.records("SELECT id, state, last_step, world_size FROM runs") == [("whole-path", "ended", 39, 3)]
    names = client.query("SELECT kind, name FROM op_names FINAL").to_pylist()
    assert names == [{"kind": "forward", "name": "layers.0"}]


def test_store_that_is_killed_and_comes_back_loses_nothing(site: Site) -> None:
    site.start_collector()
    forwarder = site.start("forward", "--linger", "0", "--drain", "300")
    rank = site.start_rank(0, 4000, 1000.0)
    client = site.client()
    until(lambda: client.query("SELECT count() AS n FROM ops").column("n")[0].as_py() > 500, "the first rows")

    site.processes[0].kill()
    site.processes[0].wait()
    site.let_ranks_finish()
    assert rank.wait(60) == 0
    listen = site.store_url.removeprefix("http://")
    site.start("store", "--listen", listen)
    until(lambda: _listens(int(listen.rpartition(":")[2])), "the store")

    assert forwarder.wait(60) == 0, site.log("forward")
    found = client.query("SELECT count() AS n, uniqExact(record) AS m FROM ops FINAL").to_pylist()
    assert found == [{"n": 4000, "m": 4000}]


def test_sigterm_ends_the_collector_with_zero_and_everything_written(site: Site) -> None:
    collector = site.start_collector()
    site.node.mkdir()
    site.let_ranks_finish()
    rank = site.start_rank(0, 500, 10_000.0)
    assert rank.wait(30) == 0
    forwarder = site.start("forward", "--once")
    assert forwarder.wait(60) == 0, site.log("forward")

    collector.send_signal(signal.SIGTERM)

    assert collector.wait(30) == 0
    assert site.client().query("SELECT count() AS n FROM ops FINAL").to_pylist() == [{"n": 500}]
    assert site.records("SELECT last_step FROM runs") == [(4,)]


def test_second_collector_on_a_port_says_so_in_one_line_and_exits_with_two(site: Site) -> None:
    site.start_collector()

    second = subprocess.run(
        [*FLIGHTWATCH, "collector"], env=site.environment, text=True, capture_output=True, timeout=60
    )

    assert second.returncode == 2
    assert re.fullmatch(r"flightwatch: port .*:\d+ is in use;.*\n", second.stderr)
    assert second.stdout == ""


def test_second_forwarder_of_a_node_leaves_at_once(site: Site) -> None:
    rank = site.start_rank(0, 5000, 500.0)
    site.start("forward")
    until(lambda: (site.node / "forwarder.lock").exists(), "the lock")
    until(lambda: (site.node / "forwarder.lock").read_text(), "the lock's owner")

    second = subprocess.run(
        [*FLIGHTWATCH, "forward", "--linger", "600"], env=site.environment, capture_output=True, timeout=60
    )

    assert second.returncode == 0
    assert b"another forwarder" in second.stderr
    rank.kill()


def test_store_of_another_schema_is_refused_with_exit_code_two(site: Site) -> None:
    with sqlite3.connect(site.folder / "data" / "records.sqlite") as store:
        store.execute("UPDATE alembic_version SET version_num = 'from-the-future'")

    refused = subprocess.run(
        [*FLIGHTWATCH, "collector"], env=site.environment, text=True, capture_output=True, timeout=60
    )

    assert refused.returncode == 2
    assert refused.stderr.count("flightwatch: ") == 1
    assert "schema" in refused.stderr or "newer" in refused.stderr
