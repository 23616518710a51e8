"""The node's forwarder: follows all rings, samples the host, and lets go of a ring only when it is settled."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from flightwatch.forward.frames import FrameBuilder
from flightwatch.forward.link import Link
from flightwatch.forward.outbox import Outbox
from flightwatch.forward.rank_session import RankSession, settler
from flightwatch.forward.ring_file import DamagedRingError, RingFile
from flightwatch.forward.roster import Roster
from flightwatch.wire import flightwatch_pb2 as wire

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5  # unless the collector wishes otherwise
SCAN_SECONDS = 1.0  # new rings, changed identities, open cells
HOST_SECONDS = 2.0
LINGER_SECONDS = 10.0
DRAIN_SECONDS = 30.0
FIRST_RING_SECONDS = 60.0  # a training script imports for a while
STOP_SECONDS = 3.0  # SIGTERM: what cannot be delivered in this time stays in the rings
RECORDS_PER_TURN = 100_000  # of one rank; 3.2 MB
RING_SUFFIX = ".ring"
MAX_EVERY = (1 << 32) - 1  # width of the control block's field


class HostSensors(Protocol):
    """What reads the node's hardware."""

    def read(self) -> Mapping[tuple[str, str], float]:
        """Return the readings by (device, metric)."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the forwarder stays, in seconds.

    `linger` after the last rank ended and all is settled, `drain` with a backlog of which nothing is taken, `first`
    while it has not seen any ring. `once`: send what is there now, and go.
    """

    linger: float = LINGER_SECONDS
    drain: float = DRAIN_SECONDS
    first: float = FIRST_RING_SECONDS
    once: bool = False


class Forwarder:
    """One per node. `run` is its life; everything but the link happens in its thread."""

    def __init__(
        self,
        directory: str,
        link: Link,
        outbox: Outbox,
        roster: Roster,
        *,
        node: str,
        sensors: HostSensors | None = None,
        patience: Patience | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._rings = os.path.join(directory, "rings")
        self._link = link
        self._outbox = outbox
        self._roster = roster
        self._node = node
        self._sensors = sensors
        self._patience = patience or Patience()
        self._monotonic = monotonic
        self._wall_ns = wall_ns
        self._sessions: dict[int, RankSession] = {}
        self._paths: dict[str, int] = {}  # by path: the epoch, 0 for a file that is no ring
        self._commands: queue.SimpleQueue[wire.Command] = queue.SimpleQueue()
        self._scanned = self._sampled = -HOST_SECONDS
        self._saw_ring = False
        self._n_read = 0  # records, in this turn
        self._sensor_error = ""
        self._sampling: tuple[bool, int] | None = None  # as commanded for all ranks: (pause, every n-th step)

    def command(self, command: wire.Command) -> None:
        """Take a collector's command. Any thread."""
        self._commands.put(command)

    def run(self, stop: threading.Event) -> None:
        """Forward until there is nothing left to do, or until `stop`."""
        if self._patience.once:
            self._run_once()
            return
        moved = self._monotonic()
        done_since: float | None = None
        acked = 0
        while not stop.is_set():
            self.turn()
            now = self._monotonic()
            if self._has_live_ranks() or self._link.acked_frames != acked:
                moved, acked = now, self._link.acked_frames
            if self._sessions or not self._outbox.is_empty():
                done_since = None
                if now - moved >= self._patience.drain:
                    self._abandon()
                    return
            elif done_since is None:
                done_since = now
            if done_since is not None and now - done_since >= self._linger_seconds():
                break
            stop.wait(self._flush_seconds())
        self._take_leave()

    def _run_once(self) -> None:
        deadline = self._monotonic() + self._patience.drain
        while True:
            self.turn()
            if not self._link.wait_drained(max(0.0, deadline - self._monotonic())):
                self._abandon()
                return
            self._outbox.pump(self._sessions.__contains__)
            self._tidy()
            if not self._n_read and self._outbox.is_empty() and not self._has_ended_ranks():
                break
        self._link.close()

    def turn(self) -> None:
        """Look at everything once, and send what is new."""
        now, wall_ns = self._monotonic(), self._wall_ns()
        self._outbox.pump(self._sessions.__contains__)
        self._obey()
        builder = FrameBuilder()
        self._n_read = 0
        is_full_look = now - self._scanned >= SCAN_SECONDS or self._patience.once
        if is_full_look:
            self._scanned = now
            self._scan()
        for session in list(self._sessions.values()):
            try:
                self._follow(session, builder, now, wall_ns, is_full_look)
            except Exception as error:
                # whatever one ring holds, the other ranks of the node are still followed
                logger.exception("following %s", session.ring.path)
                self._leave_alone(session, str(error))
        if self._sensors is not None and now - self._sampled >= HOST_SECONDS:
            self._sampled = now
            self._sample(self._sensors, builder, wall_ns)
        for frame in builder.take():
            self._outbox.send(frame, settler(self._sessions, frame))
        self._tidy()

    def _scan(self) -> None:
        paths = ring_paths(self._rings)
        for path in paths:
            if path not in self._paths:
                self._paths[path] = self._begin(path)
        for path in self._paths.keys() - set(paths):
            del self._paths[path]

    def _begin(self, path: str) -> int:
        try:
            ring = RingFile(path)
        except (DamagedRingError, OSError) as error:
            logger.error("left alone: %s", error)
            return 0
        session = RankSession(ring, found_dead=ring.owner_is_gone())
        self._sessions[session.epoch] = session
        self._saw_ring = True
        if self._sampling is not None:
            ring.write_sampling(pause=self._sampling[0], every=self._sampling[1])
        logger.info("following %s from record %d", path, session.tail.position)
        return session.epoch

    def _follow(
        self, session: RankSession, builder: FrameBuilder, now: float, wall_ns: int, is_full_look: bool
    ) -> None:
        if session.end is not None:
            return
        # asked before reading: what a process wrote before its end is then read below
        is_gone = session.ring.owner_is_gone()
        if is_full_look or session.start is None or is_gone:
            self._introduce(session, builder)
        if session.start is None:
            if is_gone and session.epoch in self._sessions:
                self._leave_alone(session, "its process died before it said who it was")
            return
        is_read = False
        if self._outbox.has_room() or session.is_half_full():
            is_read = self._read(session, builder, now, is_gone)
        if is_full_look and self._outbox.has_room():
            session.add_cells(builder, wall_ns)
        if is_gone and is_read:
            session.conclude(wall_ns, builder)
        session.add_gaps(builder)

    def _introduce(self, session: RankSession, builder: FrameBuilder) -> None:
        try:
            start = session.read_start()
        except DamagedRingError as error:
            if session.start is None:
                self._leave_alone(session, str(error))
            return
        if start is not None:
            self._roster.enter([start])
            builder.add_start(start)

    def _read(self, session: RankSession, builder: FrameBuilder, now: float, is_gone: bool) -> bool:
        """Add a rank's new records, and return whether there are no more."""
        pieces = session.read_pieces(now, max_records=RECORDS_PER_TURN, is_gone=is_gone)
        ops = session.read_ops()  # after the records: now every op that they use is in the table
        self._roster.enter([], ops)
        for op in ops:
            builder.add_op(op)
        for piece in pieces:
            builder.add_slice(session.epoch, piece.first, piece.records)
        n_read = sum(piece.end - piece.first for piece in pieces)
        self._n_read += n_read
        return n_read < RECORDS_PER_TURN

    def _leave_alone(self, session: RankSession, problem: str) -> None:
        logger.error("left alone: %s: %s", session.ring.path, problem)
        self._sessions.pop(session.epoch, None)
        self._paths[session.ring.path] = 0
        session.ring.close()

    def _sample(self, sensors: HostSensors, builder: FrameBuilder, wall_ns: int) -> None:
        try:
            readings = sensors.read()
        except Exception as error:
            # whatever a kernel answers, the ranks are still followed
            if str(error) != self._sensor_error:
                self._sensor_error = str(error)
                logger.exception("reading the host")
            return
        nodes = {session.start.node for session in self._sessions.values() if session.start is not None}
        for node in sorted(nodes) or [self._node]:
            for (device, name), value in readings.items():
                builder.add_metric(wire.Metric(node=node, device=device, name=name, unix_ns=[wall_ns], value=[value]))

    def _obey(self) -> None:
        while not self._commands.empty():
            command = self._commands.get()
            if command.verb != "set_sampling":
                logger.warning("unknown command %r", command.verb)
                continue
            pause, told = command.arguments.get("pause", "0") == "1", command.arguments.get("every", "1")
            if not (told.isdecimal() and 1 <= int(told) <= MAX_EVERY):
                logger.warning("command %s: every=%r is no number of steps", command.id, told)
                continue
            every = int(told)
            if not command.epoch:
                self._sampling = (pause, every)
            for session in self._sessions.values():
                if command.epoch in (0, session.epoch):
                    session.ring.write_sampling(pause=pause, every=every)

    def _tidy(self) -> None:
        for epoch, session in list(self._sessions.items()):
            session.save_progress()
            if session.is_finished:
                logger.info("done with %s", session.ring.path)
                session.ring.unlink()
                session.ring.close()
                del self._sessions[epoch]
                self._roster.forget(epoch)

    def _has_live_ranks(self) -> bool:
        return any(session.end is None and not session.ring.owner_is_gone() for session in self._sessions.values())

    def _has_ended_ranks(self) -> bool:
        return any(session.end is not None or session.ring.owner_is_gone() for session in self._sessions.values())

    def _linger_seconds(self) -> float:
        return self._patience.linger if self._saw_ring else self._patience.first

    def _flush_seconds(self) -> float:
        return self._link.flush_interval_ms / 1000.0 or FLUSH_SECONDS

    def _take_leave(self) -> None:
        """On SIGTERM: read once more, wait a little; the rings keep what was not acknowledged."""
        self.turn()
        self._link.wait_drained(STOP_SECONDS)
        self._outbox.pump(self._sessions.__contains__)
        self._tidy()
        self._link.close()
        self._outbox.close()

    def _abandon(self) -> None:
        """Nobody took the backlog: write it to the spool, from which the next forwarder sends it."""
        self._link.close()
        self._outbox.pump(self._sessions.__contains__)
        for frame in self._link.take_unacked():
            gaps = [gap for gap in frame.gaps if self._roster.find_start(gap.epoch) is not None]
            if frame.metrics or gaps:
                self._outbox.keep(wire.Frame(metrics=frame.metrics, gaps=gaps))
        now, wall_ns = self._monotonic(), self._wall_ns()
        for session in list(self._sessions.values()):
            session.rewind()
            while session.end is None and session.start is not None and session.ring.owner_is_gone():
                if not self._spool_rest(session, now, wall_ns):
                    break  # the disk is full: the ring stays, and holds what the spool did not take
        self._tidy()
        self._outbox.close()
        logger.warning("no collector answered (%s): the rest is in the spool", self._link.last_error)

    def _spool_rest(self, session: RankSession, now: float, wall_ns: int) -> bool:
        builder = FrameBuilder()
        if self._read(session, builder, now, is_gone=True):
            session.conclude(wall_ns, builder)
        session.add_gaps(builder)
        for frame in builder.take():
            on_settled = settler(self._sessions, frame)
            if not self._outbox.keep(frame):
                return False
            on_settled()
        return True


def has_live_ring(directory: str) -> bool:
    """Return whether some ring of the directory belongs to a process that lives."""
    for path in ring_paths(os.path.join(directory, "rings")):
        try:
            ring = RingFile(path)
        except (DamagedRingError, OSError):
            continue
        is_gone = ring.owner_is_gone()
        ring.close()
        if not is_gone:
            return True
    return False


def ring_paths(rings: str) -> list[str]:
    """Return the paths of all finished rings in a directory, which need not exist."""
    try:
        with os.scandir(rings) as entries:
            return sorted(entry.path for entry in entries if entry.name.endswith(RING_SUFFIX))
    except FileNotFoundError:
        return []
