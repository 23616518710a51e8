"""The demo as a stranger sees it: 1 process started, a slow node named and forgiven, every record counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server_fixture import free_port, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RANKS = 128  # the smallest job of 4 stages and 8 tensor ranks whose slow node has three nodes of peers
ARGUMENTS = ("--ranks", str(RANKS), "--step-seconds", "0.5", "--rhythm", "60:160:400", "--once", "--json")


class DemoProcess:
    """`flightwatch demo --json`, its events collected as they come."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FLIGHTWATCH")}
        self.events_path = folder / "events.jsonl"
        self.progress_path = folder / "progress.txt"
        command = [sys.executable, "-m", "flightwatch", "demo", *arguments, "--port-base", str(free_port())]
        with self.events_path.open("wb") as stdout, self.progress_path.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, env={**environment, "TMPDIR": str(folder)}, stdout=stdout, stderr=stderr
            )

    def events(self) -> list[dict[str, Any]]:
        lines = self.events_path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def first(self, name: str) -> dict[str, Any] | None:
        return next((event for event in self.events() if event["event"] == name), None)

    def wait_for(self, name: str, timeout_s: float) -> dict[str, Any]:
        wait_for(lambda: self.first(name) or self.process.poll() is not None, timeout_s, f"the event {name!r}")
        found = self.first(name)
        assert found is not None, self.progress_path.read_text()
        return found


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[DemoProcess]:
    running = DemoProcess(tmp_path, *ARGUMENTS)
    yield running
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(60)


def api(live: dict[str, Any], path: str) -> Any:
    with urllib.request.urlopen(live["url"].split("/ui/")[0] + path, timeout=20) as answer:
        return json.load(answer)


def test_demo_names_the_slow_node_closes_the_incident_and_loses_no_record(demo: DemoProcess, tmp_path: Path) -> None:
    live = demo.wait_for("live", 180)
    assert live["ranks"] == RANKS

    injected = demo.wait_for("injected", 120)
    opened = demo.wait_for("incident_opened", 150)
    assert (opened["kind"], opened["cause"], opened["nodes"]) == ("slow_rank", "compute", [injected["node"]])
    assert opened["is_true"]
    listed = api(live, f"/api/v1/runs/{live['run']}/incidents")
    assert injected["node"] in json.dumps(listed)

    demo.wait_for("healed", 150)
    resolved = demo.wait_for("incident_resolved", 150)
    assert resolved["incident"] == opened["incident"]

    finished = demo.wait_for("finished", 60)
    assert demo.process.wait(60) == 0
    assert finished["records_written"] == finished["records_stored"] > RANKS * 39 * 220
    assert finished["records_doubled"] == 0
    assert finished["false_alarms"] == []
    assert list(tmp_path.glob("flightwatch-demo-*")) == []  # its data are gone with it


def test_demo_that_is_interrupted_leaves_no_process_and_no_data(tmp_path: Path) -> None:
    demo = DemoProcess(tmp_path, *ARGUMENTS)
    demo.wait_for("live", 180)
    children = Path(f"/proc/{demo.process.pid}/task/{demo.process.pid}/children").read_text().split()
    assert len(children) == 5  # store, collector, analytics, dashboard, fleet

    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(60) == 1  # --once did not see the end of its story

    time.sleep(0.1)
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.glob("flightwatch-demo-*")) == []
