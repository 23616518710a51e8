"""The processes that a forwarder speaks for and what their op ids mean: what every new stream is told first."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from flightwatch.forward.frames import greeting_frames
from flightwatch.wire import flightwatch_pb2 as wire


class Roster:
    """Starts and descriptors by epoch. Written by the forwarder's loop, read by the link's threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: dict[int, wire.RankStart] = {}
        self._ops: dict[int, dict[int, wire.OpDescriptor]] = {}

    def enter(self, starts: Iterable[wire.RankStart], ops: Iterable[wire.OpDescriptor] = ()) -> None:
        """Take in processes and descriptors, in the place of older ones."""
        with self._lock:
            for start in starts:
                self._starts[start.epoch] = start
            for op in ops:
                self._ops.setdefault(op.epoch, {})[op.op] = op

    def forget(self, epoch: int) -> None:
        """Drop a process of which nothing more will be sent."""
        with self._lock:
            self._starts.pop(epoch, None)
            self._ops.pop(epoch, None)

    def find_start(self, epoch: int) -> wire.RankStart | None:
        """Return a process's start."""
        with self._lock:
            return self._starts.get(epoch)

    def greeting(self) -> list[wire.Frame]:
        """Return the frames that tell all of it."""
        with self._lock:
            return greeting_frames(self._starts.values(), (op for ops in self._ops.values() for op in ops.values()))
