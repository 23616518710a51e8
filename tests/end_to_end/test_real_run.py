"""A real 4-rank gloo job on this machine, watched from its first step to the webhook: the promise of the README."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server_fixture import REPOSITORY, Server, wait_for
from webhook_receiver import Receiver

pytest.importorskip("torch")

from collector.store.telemetry import queries
from collector.store.telemetry.client import connect

TRAIN = str(REPOSITORY / "examples" / "train_gpt.py")
FAULT = ["--slow-rank", "2", "--slow-factor", "1.5", "--slow-steps", "100:200"]


def start_job(server: Server, run_id: str, *arguments: str, ranks: int = 4) -> subprocess.Popen[str]:
    """Start the example under `flightwatch run`, as a user would."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    return subprocess.Popen(
        [sys.executable, "-m", "flightwatch", "run", "--", *torchrun, TRAIN, *arguments],
        env={**server.environment, "FLIGHTWATCH_RUN_ID": run_id, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(job: subprocess.Popen[str], timeout_s: float, meanwhile: Callable[[], None] | None = None) -> str:
    """Wait for the job, and return what it printed."""
    if meanwhile is not None:
        meanwhile()
    output, _ = job.communicate(timeout=timeout_s)
    assert job.returncode == 0, output[-3000:]
    return output


def incidents(server: Server, run_id: str) -> list[dict[str, Any]]:
    """Return what `flightwatch incidents` knows of the run."""
    listed = server.verb("incidents", "list", "--run", run_id, "--json")
    assert listed.returncode in (0, 1), listed.stderr
    found = json.loads(listed.stdout)
    return list(found["incidents"] if isinstance(found, dict) else found)


def ranks_in_records(server: Server, run_id: str) -> list[dict[str, Any]]:
    """Return epoch and records_written of each rank, from the records store."""
    import sqlite3

    path = server.records_url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as database:
        rows = database.execute(
            "SELECT rank, epoch, records_written FROM ranks WHERE run_id = ? ORDER BY rank", [run_id]
        ).fetchall()
    return [{"rank": rank, "epoch": int(epoch, 16), "records_written": written} for rank, epoch, written in rows]


def assert_rows_equal_records(server: Server, run_id: str, n_ranks: int) -> None:
    """Every record that an agent wrote is one row, no less and no more."""
    wait_for(
        lambda: (
            len(ranks_in_records(server, run_id)) == n_ranks
            and all(rank["records_written"] is not None for rank in ranks_in_records(server, run_id))
        ),
        60,
        "every rank's end",
    )
    written = {(rank["rank"], rank["epoch"]): rank["records_written"] for rank in ranks_in_records(server, run_id)}

    stored = queries.count_records(connect(server.store_url), run_id).to_pylist()

    assert {(row["rank"], row["epoch"]): row["records"] for row in stored} == written
    assert all(count > 0 for count in written.values())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_slow_rank_yields_one_incident_opened_in_time_and_resolved(server: Server, receiver: Receiver) -> None:
    job = start_job(server, "faulty", "--steps", "300", *FAULT)

    finish(job, 800)
    wait_for(
        lambda: [m["type"] for m in receiver.messages] == ["incident.opened", "incident.resolved"], 60, "the webhook"
    )

    (incident,) = incidents(server, "faulty")
    assert (incident["kind"], incident["cause"], incident["ranks"]) == ("slow_rank", "compute", [2])
    assert incident["entity"] == "rank:2"
    assert 100 <= incident["opened_step"] <= 140
    assert incident["state"] == "resolved"
    assert incident["resolved_step"] > 200
    assert [message["data"]["entity"] for message in receiver.messages] == ["rank:2", "rank:2"]
    assert receiver.refused == 0
    assert_rows_equal_records(server, "faulty", 4)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_healthy_run_raises_nothing(server: Server, receiver: Receiver) -> None:
    job = start_job(server, "healthy", "--steps", "300")

    finish(job, 800)
    assert_rows_equal_records(server, "healthy", 4)
    time.sleep(5)  # the analytics' last looks at the ended run

    assert incidents(server, "healthy") == []
    assert receiver.messages == []


@pytest.mark.timeout(600)
def test_collector_killed_in_mid_run_loses_and_doubles_nothing(server: Server, tmp_path: Path) -> None:
    job = start_job(server, "killed", "--steps", "60")

    def kill_twice() -> None:
        for _ in range(2):
            time.sleep(8)
            server.kill("collector")
            time.sleep(3)
            server.start("collector")

    finish(job, 500, kill_twice)

    assert_rows_equal_records(server, "killed", 4)
    phases = queries.step_phases(connect(server.store_url), "killed", first_step=0, last_step=59).to_pydict()
    steps = {
        (rank, step)
        for rank, step, kind in zip(phases["rank"], phases["step"], phases["phase"], strict=True)
        if kind == "step"
    }
    assert steps == {(rank, step) for rank in range(4) for step in range(60)}
