"""The simulated job as a process of its own, and the truth that it prints."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from dashboard.supervision.part import leashed

DRAIN_SECONDS = 10.0
KILL_SECONDS = 8.0  # after SIGTERM, besides draining: the running step ends first


class FleetProcess:
    """`python -m fleet --events`, started, listened to and stopped."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log_path: Path,
        *,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self.truth: dict[str, Any] = {}
        self.log_path = log_path
        self._drain_seconds = drain_seconds
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        command = [sys.executable, "-m", "fleet", "--events", "--drain-seconds", str(drain_seconds), *arguments]
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                leashed(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        if self._process.stdout is None:
            raise RuntimeError("a process started with PIPE has a stdout")
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self._process.poll()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what it has told since the last call."""
        while not self._events.empty():
            yield self._events.get()

    def stop(self) -> dict[str, Any]:
        """End the job, and return its last line: the truth and the counts; empty when it had to be killed."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(self._drain_seconds + KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=5.0)
        return self.truth

    def _read(self, stdout: IO[str]) -> None:
        with stdout:
            for line in stdout:
                told = json.loads(line)
                if "event" in told:
                    self._events.put(told)
                else:
                    self.truth = told
