"""The time by which a simulated job is paced: the wall's, or one that never waits."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and waits."""

    def monotonic_ns(self) -> int:
        """Return a time that only moves forward."""

    def unix_ns(self) -> int:
        """Return the time of day."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""


class WallClock:
    """The machine's own clocks."""

    def monotonic_ns(self) -> int:
        """Return the machine's monotonic clock."""
        return time.monotonic_ns()

    def unix_ns(self) -> int:
        """Return the machine's wall clock."""
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class FastClock:
    """A clock that jumps instead of waiting, so that a job runs as fast as it can be computed."""

    def __init__(self, unix_ns: int) -> None:
        self._unix_ns = unix_ns
        self._elapsed_ns = 0

    def monotonic_ns(self) -> int:
        """Return the nanoseconds that were slept so far."""
        return self._elapsed_ns

    def unix_ns(self) -> int:
        """Return the time of day that the job believes in."""
        return self._unix_ns + self._elapsed_ns

    def sleep(self, seconds: float) -> None:
        """Jump ahead."""
        self._elapsed_ns += round(seconds * 1e9)
