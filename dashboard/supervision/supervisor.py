"""Starts the parts in order, restarts one that dies, stops all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dashboard.supervision.part import Part
from flightwatch.errors import FlightwatchError

READY_SECONDS = 90.0  # a cold disk and two busy cores: importing a part's libraries alone has taken 20 s
POLL_SECONDS = 0.1
STOP_SECONDS = 12.0  # a collector drains for 10 s at most; what is acknowledged is on disk, so a kill loses nothing
FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
STABLE_SECONDS = 60.0  # a part that lived this long begins anew with the first backoff


class PartFailedError(FlightwatchError):
    """A part ended, or did not answer, while the server was being started."""


@dataclass(slots=True)
class _Watch:
    part: Part
    started_at: float
    backoff_seconds: float = FIRST_BACKOFF_SECONDS
    restart_at: float | None = None


class Supervisor:
    """Keeps parts running. `say` gets one line per event; time and sleep are arguments for tests."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._say = say
        self._monotonic = monotonic
        self._sleep = sleep
        self._watches: list[_Watch] = []

    @property
    def pids(self) -> dict[str, int]:
        """Return the process id of each part."""
        return {watch.part.plan.name: watch.part.pid for watch in self._watches}

    def start(self, parts: Sequence[Part], should_stop: Callable[[], bool]) -> None:
        """Start these parts side by side and wait until all of them are ready, or `should_stop`.

        Raises:
            PartFailedError: one of them ended or does not answer.
        """
        self.launch(parts)
        self.wait_ready(parts, should_stop)

    def launch(self, parts: Sequence[Part]) -> None:
        """Start these parts side by side."""
        for part in parts:
            part.start()
            self._watches.append(_Watch(part, self._monotonic()))

    def wait_ready(self, parts: Sequence[Part], should_stop: Callable[[], bool]) -> None:
        """Wait until all of these parts are ready, or `should_stop`.

        Raises:
            PartFailedError: one of them ended or does not answer.
        """
        for part in parts:
            self._wait_ready(part, self._monotonic() + READY_SECONDS, should_stop)
            if should_stop():
                return
            self._say(f"{part.plan.name:<9}  ready  {part.plan.where}".rstrip())

    def look(self) -> None:
        """Look once: note which parts ended, and start again those whose waiting time is over."""
        now = self._monotonic()
        for watch in self._watches:
            if watch.restart_at is not None:
                if now >= watch.restart_at:
                    watch.restart_at = None
                    watch.started_at = now
                    watch.part.start()
                    self._say(f"{watch.part.plan.name} started again, process {watch.part.pid}")
            elif watch.part.exit_code is not None:
                self._plan_restart(watch, now)

    def stop(self) -> None:
        """Stop all parts: the first (what the others write into) after the others. None is left behind."""
        for watches in (self._watches[1:], self._watches[:1]):
            for watch in watches:
                watch.part.ask_to_stop()
            deadline = self._monotonic() + STOP_SECONDS
            for watch in watches:
                if not watch.part.wait_or_kill(deadline - self._monotonic()):
                    self._say(f"{watch.part.plan.name} did not stop within {STOP_SECONDS:.0f} s and was killed")
        self._watches.clear()

    def _plan_restart(self, watch: _Watch, now: float) -> None:
        part = watch.part
        if now - watch.started_at > STABLE_SECONDS:
            watch.backoff_seconds = FIRST_BACKOFF_SECONDS
        watch.restart_at = now + watch.backoff_seconds
        self._say(
            f"{part.plan.name} ended ({_how(part.exit_code)}); starting it again in {watch.backoff_seconds:.1f} s. "
            f"Its log: {part.log_path}"
        )
        watch.backoff_seconds = min(2 * watch.backoff_seconds, MAX_BACKOFF_SECONDS)

    def _wait_ready(self, part: Part, deadline: float, should_stop: Callable[[], bool]) -> None:
        while not should_stop():
            if part.exit_code is not None:
                words = part.last_words() or _how(part.exit_code)
                raise PartFailedError(f"{part.plan.name} did not start: {words} (log: {part.log_path})")
            if part.plan.is_ready():
                return
            if self._monotonic() > deadline:
                silent = f"{part.plan.name} does not answer at {part.plan.where} after {READY_SECONDS:.0f} s"
                raise PartFailedError(f"{silent} (log: {part.log_path})")
            self._sleep(POLL_SECONDS)


def _how(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by signal {-exit_code}"
    return f"exit code {exit_code}"
