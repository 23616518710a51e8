"""Frames that no collector has acknowledged yet, in order, ready to be sent again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from flightwatch.wire import flightwatch_pb2 as wire


@dataclass(frozen=True, slots=True)
class KeptFrame:
    """One frame as it goes over the wire, and what to do once it is settled."""

    number: int
    body: bytes
    on_ack: Callable[[], None] | None


MAX_BODY_BYTES = (1 << 20) - 4096  # a collector takes messages of 1 MiB; a bigger one would be refused for ever


class UnackedFrames:
    """A queue with a cursor: frames behind it were sent on the present stream, those before it were not.

    Frames are kept serialised, so that the memory they take is known to the byte and a resend costs nothing.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.total_bytes = 0
        self._kept: OrderedDict[int, KeptFrame] = OrderedDict()  # ascending: insertion order is number order
        self._sent_below = 0
        self._next_number = 1

    def number(self) -> int:
        """Return the next frame number, counting up within this process."""
        with self.changed:
            number = self._next_number
            self._next_number += 1
            return number

    def add(self, frame: wire.Frame, on_ack: Callable[[], None] | None) -> None:
        """Number a frame and keep it."""
        with self.changed:
            frame.frame = self._next_number
            self._next_number += 1
            kept = KeptFrame(frame.frame, frame.SerializeToString(), on_ack)
            if len(kept.body) > MAX_BODY_BYTES:
                raise ValueError(f"frame of {len(kept.body)} bytes: a collector takes {MAX_BODY_BYTES}")
            self._kept[kept.number] = kept
            self.total_bytes += len(kept.body)
            self.changed.notify_all()

    def rewind(self) -> None:
        """Begin again with the oldest: a new stream has seen nothing."""
        with self.changed:
            self._sent_below = 0

    def next_unsent(self) -> KeptFrame | None:
        """Return the oldest frame not yet sent on this stream, and move the cursor on. The caller holds `changed`."""
        newest = self._next_number - 1
        for number in range(max(self._sent_below, next(iter(self._kept), newest)), newest + 1):
            if number in self._kept:
                self._sent_below = number + 1
                return self._kept[number]
        return None

    def settle(self, number: int) -> KeptFrame | None:
        """Forget a frame that was acknowledged or refused; None if it is not kept (a greeting, or settled before)."""
        with self.changed:
            kept = self._kept.pop(number, None)
            if kept is not None:
                self.total_bytes -= len(kept.body)
                self.changed.notify_all()
            return kept

    def oldest(self) -> int:
        """Return the number of the oldest frame kept, 0 if there is none."""
        with self.changed:
            return next(iter(self._kept), 0)

    def is_empty(self) -> bool:
        """Return whether everything was settled."""
        return not self._kept

    def take_all(self) -> list[KeptFrame]:
        """Return all frames kept and forget them: they go elsewhere."""
        with self.changed:
            taken = list(self._kept.values())
            self._kept.clear()
            self.total_bytes = 0
            self.changed.notify_all()
            return taken
