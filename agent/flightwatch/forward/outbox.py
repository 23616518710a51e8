"""Where frames go: to the collector, else to the spool; and from the spool to the collector once it answers again."""

from __future__ import annotations

import itertools
import logging
import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator

from flightwatch.forward.link import Link
from flightwatch.forward.roster import Roster
from flightwatch.forward.spool import Spool, add_lost_slices, drop, lost_frame, read_frames
from flightwatch.wire import flightwatch_pb2 as wire

logger = logging.getLogger(__name__)

SHIP_BYTES_PER_PUMP = 4 << 20  # of the backlog; live frames go first
MAX_QUARANTINED = 100
REFUSED = "refused"
SPOOL_FULL = "spool_full"


class Outbox:
    """Takes frames and sees to it that each is settled: acknowledged, spooled, or reported as lost.

    All methods belong to the forwarder's loop, but `refuse`: the link's thread calls it. Callbacks run inside `pump`.
    """

    def __init__(self, link: Link, spool: Spool, roster: Roster, *, quarantine: str) -> None:
        self._link = link
        self._spool = spool
        self._roster = roster
        self._quarantine = quarantine
        self._settled: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._refused: queue.SimpleQueue[tuple[wire.Frame, str]] = queue.SimpleQueue()
        self._gaps: dict[str, dict[int, wire.Gap]] = {}  # by reason and epoch, to be said with the next frame
        self._ends: list[wire.RankEnd] = []  # of refused frames, to be said again without the rest
        self._owed_starts: dict[int, wire.RankStart] = {}  # whose gaps and ends these are: their rings may be gone
        self._shipping: str = ""
        self._shipping_frames: Iterator[wire.Frame] = iter(())
        self._shipping_left = 0
        self._shipping_epochs: set[int] = set()
        self._numbers = itertools.count()
        self._spool_fails = False

    def has_room(self) -> bool:
        """Return whether a frame sent now would go to the collector's queue."""
        return self._link.has_room()

    def send(self, frame: wire.Frame, on_settled: Callable[[], None]) -> None:
        """Send a frame, or keep it on disk when too much waits already."""
        if self._link.has_room():
            if frame.starts or frame.ops:
                # later frames in the present file would need what it was not told; the next begins with all of it
                self._spool.close_file()
            self._link.submit(frame, lambda: self._settled.put(on_settled))
            return
        if not self.keep(frame):
            self._owe(SPOOL_FULL, frame)
        on_settled()

    def keep(self, frame: wire.Frame) -> bool:
        """Write a frame to the spool, dropping the oldest there if it is full (a gap takes its place).

        Returns: whether the disk took it.
        """
        try:
            self._spool.write(frame)
            while (path := self._spool.find_overflow(keep=self._shipping)) is not None:
                lost = lost_frame(path, SPOOL_FULL)
                drop(path)
                if lost.gaps or lost.ends:
                    self._spool.write(lost)
            self._spool_fails = False
        except OSError as error:
            if not self._spool_fails:
                logger.error("the spool takes nothing: %s", error)
            self._spool_fails = True
            return False
        return True

    def refuse(self, frame: wire.Frame, problem: str) -> None:
        """Take a frame that a collector refused as malformed. Any thread."""
        self._refused.put((frame, problem))

    def pump(self, is_live: Callable[[int], bool]) -> None:
        """Run what acknowledgements left to do, and send some of the spool.

        Args:
            is_live: whether an epoch has a ring, so that it stays in the roster when a spool file is done.
        """
        while not self._settled.empty():
            self._settled.get()()
        while not self._refused.empty():
            self._set_aside(*self._refused.get())
        if self._link.connected:
            self._say_gaps()
            self._ship(is_live)

    def is_empty(self) -> bool:
        """Return whether the spool holds nothing, nothing of it is on its way, and no gap waits to be said."""
        return not self._shipping and self._spool.is_empty() and not self._owed_starts

    def close(self) -> None:
        """Bring the spool to disk, with what is still to be said."""
        owed = self._take_owed()
        if owed.gaps or owed.ends:
            self.keep(owed)
        self._spool.close_file()

    def _say_gaps(self) -> None:
        frame = self._take_owed()
        if frame.gaps or frame.ends:
            self.send(frame, lambda: None)

    def _owe(self, reason: str, frame: wire.Frame, ends: Iterable[wire.RankEnd] = ()) -> None:
        """Note what a lost frame leaves to be said. Whose it was is noted now: its ring may be gone by then."""
        add_lost_slices(self._gaps.setdefault(reason, {}), frame, reason)
        self._ends.extend(ends)
        for epoch in {part.epoch for part in (*frame.slices, *self._ends)}:
            start = self._roster.find_start(epoch)
            if start is not None:
                self._owed_starts[epoch] = start

    def _take_owed(self) -> wire.Frame:
        frame = wire.Frame(starts=self._owed_starts.values())
        for gaps in self._gaps.values():
            frame.gaps.extend(gap for epoch, gap in gaps.items() if epoch in self._owed_starts)
        frame.ends.extend(end for end in self._ends if end.epoch in self._owed_starts)
        self._gaps.clear()
        self._ends.clear()
        self._owed_starts.clear()
        return frame

    def _ship(self, is_live: Callable[[int], bool]) -> None:
        if not self._shipping:
            self._begin_file()
        sent_bytes = 0
        while self._shipping and self._link.has_room() and sent_bytes < SHIP_BYTES_PER_PUMP:
            frame = next(self._shipping_frames, None)
            if frame is None:
                self._end_file(is_live)
                return
            self._introduce(frame)
            self._shipping_left += 1
            self._link.submit(frame, lambda: self._settled.put(self._shipped))
            sent_bytes += frame.ByteSize()

    def _begin_file(self) -> None:
        files = self._spool.files()
        if not files:
            self._spool.close_file()  # the present one becomes a finished one, for the next time
            return
        self._shipping = files[0]
        self._shipping_frames = read_frames(files[0])
        self._shipping_left = 0
        logger.info("sending %s", files[0])

    def _introduce(self, frame: wire.Frame) -> None:
        """Enter processes that have no ring any more: a reconnection in mid-file has to greet with them."""
        starts = [start for start in frame.starts if self._roster.find_start(start.epoch) is None]
        self._shipping_epochs.update(start.epoch for start in starts)
        self._roster.enter(starts, [op for op in frame.ops if op.epoch in self._shipping_epochs])

    def _shipped(self) -> None:
        self._shipping_left -= 1

    def _end_file(self, is_live: Callable[[int], bool]) -> None:
        """Remove the file once all of it is acknowledged; until then its iterator stays at its end."""
        if self._shipping_left:
            return
        drop(self._shipping)
        for epoch in self._shipping_epochs:
            if not is_live(epoch):
                self._roster.forget(epoch)
        self._shipping_epochs.clear()
        self._shipping = ""

    def _set_aside(self, frame: wire.Frame, problem: str) -> None:
        logger.error("a collector refused a frame: %s", problem)
        # an end that was itself refused, or that comes without records again, would be refused for ever
        ends = frame.ends if frame.slices and not problem.startswith("ends[") else ()
        self._owe(REFUSED, frame, ends)
        try:
            os.makedirs(self._quarantine, mode=0o700, exist_ok=True)
            if len(os.listdir(self._quarantine)) >= 2 * MAX_QUARANTINED:
                return
            path = os.path.join(self._quarantine, f"{time.time_ns():020d}-{next(self._numbers)}")
            with open(f"{path}.frame", "wb") as body, open(f"{path}.txt", "w", encoding="utf-8") as text:
                body.write(frame.SerializeToString())
                text.write(f"{problem}\n")
        except OSError as error:
            logger.error("%s: %s", self._quarantine, error)
