"""A real `flightwatch store` in a process of its own, for tests that need one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from collector.store.telemetry.client import connect
from collector.store.telemetry.migrations import migrate_telemetry

STOP_SECONDS = 60


class StoreProcess:
    """Starts a store on a free port and a data directory of the caller's; `url` says where it listens."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and return when it says that it listens."""
        self.process = start_store("127.0.0.1:0", self.data_dir)
        assert self.process.stdout is not None
        first_line = self.process.stdout.readline()
        if "listens on" not in first_line:
            output, _ = self.process.communicate(timeout=STOP_SECONDS)
            raise AssertionError(f"the store did not start: {first_line}{output}")
        self.url = first_line.split("listens on ")[1].split(",")[0]

    def migrate(self) -> Self:
        """Bring it to the newest schema."""
        client = connect(self.url)
        migrate_telemetry(client)
        client.close()
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode


def start_store(listen: str, data_dir: Path) -> subprocess.Popen[str]:
    """Start the verb `store`; its output and errors come through one pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "flightwatch", "store", "--listen", listen, "--data", str(data_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
