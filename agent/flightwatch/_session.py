"""One process's watch: made once, at the first sign of training or by `init()`, and ended once."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Mapping

from flightwatch._directory import node_directory
from flightwatch._guard import contained, guard, guarded
from flightwatch._identity import Identity, identify
from flightwatch._node import ensure_forwarder
from flightwatch._recorder import Recorder
from flightwatch._ring import RingWriter

KILL_SWITCH = "0"
# How long close() waits for ends of collectives that are being written on other threads just now.
CLOSE_WAIT_SECONDS = 0.1


class Session:
    """Ring, recorder and identity of this process."""

    def __init__(self, identity: Identity, *, directory: str, first_step: int) -> None:
        self.identity = identity
        self.ring = RingWriter(directory, identity.to_json(), epoch=int.from_bytes(os.urandom(8), "little"))
        self.recorder = Recorder(self.ring, first_step=first_step)
        self.closers: list[Callable[[], None]] = []  # run at the end, last added first
        self.is_busy: Callable[[], bool] = lambda: False  # whether some thread still has a record to write

    def identify(self, identity: Identity) -> None:
        """Put a better-known identity into the ring's header."""
        if identity != self.identity:
            self.identity = identity
            self.ring.rewrite_identity(identity.to_json())

    def close(self) -> None:
        """Unload the hooks, let the last ends be written for CLOSE_WAIT_SECONDS at most, say goodbye."""
        for closer in reversed(self.closers):
            with contained("close"):
                closer()
        deadline = time.monotonic() + CLOSE_WAIT_SECONDS
        while self.is_busy() and time.monotonic() < deadline:
            time.sleep(0.001)
        self.ring.close()


class _Process:
    """What this process knows of its session. A closed, failed or forked process stays unwatched for good."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.is_over = False


_process = _Process()


def current() -> Session | None:
    """Return this process's session, if it runs."""
    return _process.session


def is_over() -> bool:
    """Return whether this process has no session and will have none."""
    return _process.is_over or os.environ.get("FLIGHTWATCH") == KILL_SWITCH


def recorder() -> Recorder | None:
    """Return the recorder of the running session, if any."""
    session = _process.session
    return None if session is None else session.recorder


def start(*, run: str = "", first_step: int = 0) -> Session | None:
    """Return the running session, started now if need be; None where the kill switch is on or it cannot be started."""
    if _process.session is not None:
        return _process.session
    if is_over():
        return None
    _process.is_over = True  # until it has succeeded: a start that failed is not tried again at every hook
    _start(run, first_step)
    _process.is_over = _process.session is None
    return _process.session


@guarded("start")
def _start(run: str, first_step: int) -> None:
    directory = node_directory(os.environ)
    guard.log_to(os.path.join(directory, "agent.log"))
    identity = _with_process_group(identify(os.environ, run=run, framework=_framework()))
    _process.session = Session(identity, directory=directory, first_step=first_step)
    atexit.register(close)
    if identity.local_rank == 0:
        with contained("start forwarder"):
            ensure_forwarder(directory, os.environ)


@guarded("close")
def close() -> None:
    """End the session, if one runs; this process is not watched again."""
    session, _process.session = _process.session, None
    _process.is_over = True
    if session is not None:
        atexit.unregister(close)
        session.close()


@guarded("identity")
def place(source: str, coordinates: Mapping[str, int]) -> None:
    """Add what a group or a wrapper tells of this rank's place, {"dp": 3}, to the ring's header."""
    session = _process.session
    if session is not None:
        session.identify(session.identity.placed(source, coordinates))


@guarded("identity")
def refine_identity() -> None:
    """Learn the rank from the process group, where it was made after the session and the environment tells none."""
    session = _process.session
    if session is not None:
        session.identify(_with_process_group(session.identity))


def _with_process_group(identity: Identity) -> Identity:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return identity
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    return identity.seen_by("torch.distributed", rank=rank, world_size=world_size)


def _framework() -> str:
    torch = sys.modules.get("torch")
    return "" if torch is None else f"torch {getattr(torch, '__version__', '')}"


def _forget_in_child() -> None:
    if _process.session is not None:
        _process.session = None
        _process.is_over = True


os.register_at_fork(after_in_child=_forget_in_child)
