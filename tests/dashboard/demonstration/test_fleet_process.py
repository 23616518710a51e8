from __future__ import annotations

import os
import socket
from pathlib import Path

from dashboard.demonstration.fleet_process import FleetProcess
from server_fixture import wait_for


def test_a_fleet_tells_its_faults_and_the_truth_when_it_is_stopped(tmp_path: Path) -> None:
    with socket.socket() as deaf:  # bound, and it does not listen: nothing is ever acknowledged
        deaf.bind(("127.0.0.1", 0))
        size = ["--ranks", "16", "--step-seconds", "0.05", "--slow-loop", "2:3:50"]
        collector = ["--collector", f"127.0.0.1:{deaf.getsockname()[1]}"]
        fleet = FleetProcess([*size, *collector], os.environ, tmp_path / "fleet.log", drain_seconds=0.1)
        told: list[str] = []

        def has_healed() -> bool:
            told.extend(event["event"] for event in fleet.events())
            return "healed" in told

        wait_for(has_healed, 60, "the fleet to inject and heal a fault")
        assert fleet.exit_code is None
        truth = fleet.stop()

    assert told == ["started", "injected", "healed"]
    assert [(fault["first_step"], fault["last_step"]) for fault in truth["faults"]] == [(2, 4)]
    assert truth["records_written"] > truth["records_acknowledged"] == 0
    assert fleet.exit_code == 1
    assert "not everything was acknowledged" in fleet.log_path.read_text()
