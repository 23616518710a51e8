"""The simulated job against a real collector and a real store, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from collector.store.records import Rank, Run
from collector.store.records.run import ENDED
from collector.store.records.session import UnitOfWork, open_engine
from dashboard.demonstration.verification import Stored, count_stored
from dashboard.supervision.addresses import Addresses
from dashboard.supervision.server_parts import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(Addresses.on_free_ports(), tmp_path_factory.mktemp("server"), print)
    try:
        running.start_stores(lambda: False)
        running.start_parts(("collector",), lambda: False)
        yield running
    finally:
        running.stop()


def start_fleet(server: Server, run: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fleet", "--collector", server.addresses.collector, "--run-id", run]
    return subprocess.Popen([*command, *arguments, "--drain-seconds", "100"], stdout=subprocess.PIPE, text=True)


def truth_of(fleet: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = fleet.communicate(timeout=200)
    truth: dict[str, Any] = json.loads(out.splitlines()[-1])
    return truth


def test_every_record_of_a_fast_job_becomes_one_row(server: Server) -> None:
    fleet = start_fleet(server, "fast-run", "--fast", "--ranks", "128", "--steps", "100")

    truth = truth_of(fleet)

    written = truth["records_written"]
    assert written == truth["records_acknowledged"] == 100 * 128 * 43
    assert count_stored(server.settings.store_url, "fast-run") == Stored(rows=written, numbers=written)


def test_a_job_that_ends_is_known_with_its_ranks_and_counts(server: Server) -> None:
    truth = truth_of(start_fleet(server, "short-run", "--fast", "--ranks", "32", "--steps", "10"))

    engine = open_engine(server.settings.records_url)
    with UnitOfWork(engine) as work:
        run = work.session.get_one(Run, "short-run")
        ranks = work.session.query(Rank).where(Rank.run_id == "short-run").order_by(Rank.rank).all()
    engine.dispose()

    assert (run.state, run.name, run.world_size, run.last_step) == (ENDED, "demo", 32, 9)
    assert [rank.rank for rank in ranks] == list(range(32))
    assert {rank.end for rank in ranks} == {"clean"}
    assert sum(rank.records_written or 0 for rank in ranks) == truth["records_written"]
    assert (ranks[9].node, ranks[9].coordinates) == ("node-001", {"dp": 0, "pp": 1, "tp": 1})


def test_a_collector_killed_in_mid_run_loses_and_doubles_nothing(server: Server) -> None:
    fleet = start_fleet(server, "killed-run", "--ranks", "128", "--steps", "160", "--step-seconds", "0.05")
    deadline = time.monotonic() + 60
    while count_stored(server.settings.store_url, "killed-run").rows == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    killed = server.supervisor.pids["collector"]
    os.kill(killed, signal.SIGKILL)
    while fleet.poll() is None and time.monotonic() < deadline + 120:
        server.supervisor.look()
        time.sleep(0.1)

    truth = truth_of(fleet)
    written = truth["records_written"]
    assert server.supervisor.pids["collector"] != killed
    assert written == truth["records_acknowledged"] == 160 * 128 * 43
    assert count_stored(server.settings.store_url, "killed-run") == Stored(rows=written, numbers=written)
