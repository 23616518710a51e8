"""SIGINT, SIGTERM and SIGHUP as a flag that a loop looks at."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # SIGHUP: the terminal was closed


class StopSignals:
    """Set by the first signal. The context manager gives the signals back at its end."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._set)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave us

    def __call__(self) -> bool:
        """Return whether a signal came."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait, or less when a signal comes, and return whether one did."""
        deadline = time.monotonic() + seconds
        # in short pieces: a signal handler runs between them, not while Event.wait holds the main thread
        while not self._event.is_set() and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
        return self._event.is_set()

    def _set(self, number: int, frame: FrameType | None) -> None:
        self._event.set()
