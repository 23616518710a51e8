"""One process of the server, under supervision."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOG_BYTES_KEPT = 16 << 20  # a bigger log is set aside at the next start, one generation


@dataclass(frozen=True, slots=True)
class PartPlan:
    """How to start a part and how to know that it is ready. `where` is what a person is told."""

    name: str
    arguments: tuple[str, ...]
    is_ready: Callable[[], bool]
    where: str = ""


class Part:
    """The living side of a PartPlan; `start` may be called again after its end."""

    def __init__(self, plan: PartPlan, environment: Mapping[str, str], log_dir: Path) -> None:
        self.plan = plan
        self.log_path = log_dir / f"{plan.name}.log"
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process id, 0 before the first start."""
        return self._process.pid if self._process is not None else 0

    @property
    def exit_code(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start the process, its output appended to the log."""
        if self.log_path.exists() and self.log_path.stat().st_size > LOG_BYTES_KEPT:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                leashed([sys.executable, "-m", "flightwatch", *self.plan.arguments]),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a terminal's Ctrl-C reaches us alone, and we stop the parts in order
            )

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def wait_or_kill(self, timeout_s: float) -> bool:
        """Wait for the end, kill the process group when it does not come, and return whether it came by itself."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(timeout_s, 0.0))
            return True
        except subprocess.TimeoutExpired:
            return False
        finally:
            # also what it may have started and left
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def last_words(self) -> str:
        """Return the last line of the log that says something."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - 8192))
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
            return lines[-1].removeprefix("flightwatch: ") if lines else ""
        return ""


def leashed(command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` as a process that dies with us."""
    return [sys.executable, "-m", "dashboard.supervision.leash", str(os.getpid()), *command]
