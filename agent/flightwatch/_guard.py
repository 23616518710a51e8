"""The one seam in which the agent may fail: contained, counted, said once, never raised into training.

Only our own code runs inside it. Code of the user's (a forward, the body of `with step()`) is called outside, so that
its exceptions pass unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

# A hook that failed this often is switched off: it will fail again, and each failure costs an exception.
FAILURES_BEFORE_OFF = 16
# The log of one process stays below this, whatever goes wrong in it.
MAX_LOG_LINES = 200
# These are the user's and the interpreter's way to end; no seam of ours may hold them up.
PASSED_ON = (KeyboardInterrupt, SystemExit, GeneratorExit)

_R = TypeVar("_R")


class Guard:
    """Counts what failed in this process, and writes one line per cause into agent.log."""

    def __init__(self) -> None:
        self.failures: dict[str, int] = {}
        self.off: set[str] = set()
        self._said: set[str] = set()
        self._log_path: str | None = None
        self._waiting: list[str] = []

    def log_to(self, path: str) -> None:
        """Set where lines go; those said earlier are written now."""
        self._log_path = path
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._append(line)

    def failed(self, name: str, error: BaseException) -> None:
        """Count one failure of `name`, say its cause once, and switch `name` off after FAILURES_BEFORE_OFF."""
        count = self.failures.get(name, 0) + 1
        self.failures[name] = count
        try:
            text = str(error)
        except Exception:  # an object of the user's may raise anything, and then fail to say what
            text = "it cannot say why"
        self.say(f"{name}: {type(error).__name__}: {text}{_place(error)}")
        if count == FAILURES_BEFORE_OFF:
            self.off.add(name)
            self.say(f"{name}: switched off after {count} failures")

    def say(self, text: str) -> None:
        """Write one line to agent.log, the first time it is said; never raises."""
        if text in self._said or len(self._said) >= MAX_LOG_LINES:
            return
        self._said.add(text)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = f"{stamp} pid {os.getpid()} {' '.join(text.split())[:500]}\n"
        if self._log_path is None:
            self._waiting.append(line)
        else:
            self._append(line)

    def _append(self, line: str) -> None:
        if self._log_path is None:
            return
        with contextlib.suppress(OSError):  # a log that cannot be written is no reason to disturb anyone
            fd = os.open(self._log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(fd, line.encode(errors="backslashreplace"))
            finally:
                os.close(fd)


guard = Guard()


class contained:  # noqa: N801  # reads as a word: `with contained("step"):`
    """Context manager in which whatever fails is counted and swallowed, PASSED_ON excepted."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if error is None or isinstance(error, PASSED_ON):
            return False
        guard.failed(self._name, error)
        return True


def guarded(name: str) -> Callable[[Callable[..., _R]], Callable[..., _R | None]]:
    """Return a decorator: the function gives None where it failed, and at once when it is switched off."""

    def decorate(function: Callable[..., _R]) -> Callable[..., _R | None]:
        off = guard.off

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> _R | None:
            if name in off:
                return None
            try:
                return function(*args, **kwargs)
            except PASSED_ON:
                raise
            except BaseException as error:
                guard.failed(name, error)
                return None

        return inside

    return decorate


def _place(error: BaseException) -> str:
    """Return " at file:line" of the innermost frame, or nothing."""
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f" at {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
