"""The demo as a stranger sees it: 1 process started, a slow node named and forgiven, every record counted."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo_process import RANKS, DemoProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ARGUMENTS = ("--ranks", str(RANKS), "--step-seconds", "0.5", "--rhythm", "60:160:400", "--once", "--json")


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
