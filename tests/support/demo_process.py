"""`flightwatch demo` as a process, its events read as they come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from server_fixture import free_port, wait_for

RANKS = 128  # the smallest job of 4 stages and 8 tensor ranks whose slow node has three nodes of peers


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
