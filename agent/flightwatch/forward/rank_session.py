"""One rank as the forwarder follows it: its ring, how far it was read, how far that is settled, and its end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flightwatch._ops import Op
from flightwatch.forward.frames import FrameBuilder
from flightwatch.forward.ring_file import DamagedRingError, RingFile
from flightwatch.forward.tail import Piece, Tail
from flightwatch.wire import flightwatch_pb2 as wire
from flightwatch.wire.limits import MAX_ATTEMPT, MAX_NAME, MAX_RUN, MAX_TEXT, MAX_WORLD_SIZE

logger = logging.getLogger(__name__)

CLEAN = "clean"
LOST = "lost"


class RankSession:
    """Follows one ring from its discovery until everything of it is settled (acknowledged, or in the spool)."""

    def __init__(self, ring: RingFile, *, found_dead: bool) -> None:
        self.ring = ring
        self.epoch = ring.epoch
        self.tail = Tail(ring, ring.read_acknowledged())
        self.start: wire.RankStart | None = None
        self.end: wire.RankEnd | None = None
        self.end_is_settled = False
        self._found_dead = found_dead
        self._n_ops = 0
        self._unsettled: dict[int, None] = {}  # first records of slices on their way, ascending
        self._acknowledged = self.tail.position

    @property
    def settled(self) -> int:
        """Return below which record number everything is settled."""
        return next(iter(self._unsettled), self.tail.position)

    @property
    def is_finished(self) -> bool:
        """Return whether the ring may go: its process is no more, and nothing of it is on its way."""
        return self.end_is_settled and not self._unsettled

    def read_start(self) -> wire.RankStart | None:
        """Return the process's start if it is new or has changed, else None.

        Raises:
            DamagedRingError: a collector would refuse it, and with it every other start in its frame.
        """
        identity = self.ring.read_identity()
        if identity is None:
            return None
        try:
            start = make_start(self.ring, identity)
        except (TypeError, ValueError) as error:
            raise DamagedRingError(f"{self.ring.path}: its identity is not usable: {error}") from error
        if start == self.start:
            return None
        self.start = start
        return start

    def read_ops(self) -> list[wire.OpDescriptor]:
        """Return the descriptors that are new in the ring's table."""
        descriptors = []
        for op in self.ring.read_new_ops():
            self._n_ops += 1  # an entry's place is its id, counted from 1
            descriptors.append(describe_op(self.epoch, self._n_ops, op))
        return descriptors

    def read_pieces(self, now: float, *, max_records: int, is_gone: bool) -> list[Piece]:
        """Return what was written since the last call; nothing is waited for when the process is gone."""
        return self.tail.read(now, max_records=max_records, final=is_gone)

    def is_half_full(self) -> bool:
        """Return whether half of the ring is not read yet, so that it will be overwritten soon."""
        return self.tail.is_written(self.tail.position + self.ring.capacity // 2)

    def conclude(self, unix_ns: int, builder: FrameBuilder) -> None:
        """Add the end: the process is gone and its ring is read to the last record.

        Args:
            unix_ns: the present time; for a process that died before we came, the last change of its ring counts.
            builder: holds everything that was read already.
        """
        written = self.ring.written_at_close()
        if written is not None:
            self.tail.skip_to(written)
        self.end = wire.RankEnd(
            epoch=self.epoch,
            how=LOST if written is None else CLEAN,
            records_written=self.tail.position,
            unix_ns=self.ring.modified_unix_ns if self._found_dead else unix_ns,
        )
        builder.add_end(self.end)

    def add_cells(self, builder: FrameBuilder, unix_ns: int) -> None:
        """Add what the threads are doing."""
        for cell in self.ring.read_cells():
            if cell.op > self._n_ops:
                continue  # named after we read the table: the next look has it
            builder.add_cell(
                wire.OpenCell(
                    epoch=self.epoch,
                    thread=cell.thread,
                    op=cell.op,
                    step=cell.step,
                    start_monotonic_ns=cell.start_ns,
                    seen_unix_ns=unix_ns,
                )
            )

    def add_gaps(self, builder: FrameBuilder) -> None:
        """Add what could not be read since the last call."""
        for lost in self.tail.lost:
            logger.warning("%s: records %d to %d: %s", self.ring.path, lost.first, lost.last, lost.reason)
            builder.add_gap(
                wire.Gap(
                    epoch=self.epoch,
                    reason=lost.reason,
                    first_record=lost.first,
                    last_record=lost.last,
                    count=lost.last - lost.first + 1,
                )
            )
        self.tail.lost.clear()

    def expect(self, first_record: int) -> None:
        """Note that a slice is on its way; slices are told in ascending order."""
        self._unsettled[first_record] = None

    def settle(self, first_record: int) -> None:
        """Note that the slice that begins with `first_record` needs no further care."""
        self._unsettled.pop(first_record, None)

    def save_progress(self) -> None:
        """Write into the ring how far it is settled, so that another forwarder goes on from there."""
        if self.settled > self._acknowledged:
            self._acknowledged = self.settled
            self.ring.write_acknowledged(self._acknowledged)

    def rewind(self) -> None:
        """Go back to the first record that is not settled."""
        self.tail.position = self.settled
        self._unsettled.clear()
        self.end = None


def settler(sessions: dict[int, RankSession], frame: wire.Frame) -> Callable[[], None]:
    """Return what is to be called once a frame is settled, and note now that its slices and ends are on their way."""
    firsts = [(piece.epoch, piece.first_record) for piece in frame.slices]
    ends = [end.epoch for end in frame.ends]
    for epoch, first in firsts:
        if epoch in sessions:
            sessions[epoch].expect(first)

    def settle() -> None:
        for epoch, first in firsts:
            if epoch in sessions:
                sessions[epoch].settle(first)
        for epoch in ends:
            if epoch in sessions:
                sessions[epoch].end_is_settled = True

    return settle


def make_start(ring: RingFile, identity: dict[str, object]) -> wire.RankStart:
    """Return the wire's form of a ring's identity.

    Raises:
        TypeError, ValueError: it is not what an agent writes.
    """
    start = wire.RankStart(
        epoch=ring.epoch,
        pid=ring.pid,
        start_unix_ns=ring.start_unix_ns,
        start_monotonic_ns=ring.start_monotonic_ns,
        ring_capacity=ring.capacity,
    )
    for name in ("run", "run_name", "node", "framework"):
        setattr(start, name, str(identity.get(name) or ""))
    for name in ("attempt", "rank", "world_size", "local_rank"):
        setattr(start, name, int(str(identity.get(name) or 0)))
    for target, name in ((start.coordinates, "coordinates"), (start.sources, "sources")):
        told = identity.get(name)
        if isinstance(told, dict):
            target.update(told)
    _check_start(start)
    return start


def _check_start(start: wire.RankStart) -> None:
    """Raise ValueError where a collector would refuse it; it stands in each greeting, beside those of other ranks."""
    for name, limit in (("run", MAX_RUN), ("node", MAX_NAME)):
        told = getattr(start, name)
        if not 0 < len(told) <= limit or "\0" in told:
            raise ValueError(f"{name} {told[:40]!r} has {len(told)} characters, not 1 to {limit}, or a NUL among them")
    if not max(start.rank, start.local_rank) < start.world_size <= MAX_WORLD_SIZE or start.attempt > MAX_ATTEMPT:
        raise ValueError(
            f"rank {start.rank} (local rank {start.local_rank}) of {start.world_size}, attempt {start.attempt}"
        )


def describe_op(epoch: int, number: int, op: Op) -> wire.OpDescriptor:
    """Return the wire's form of a descriptor; texts longer than a collector takes are cut, the key is of the whole."""
    return wire.OpDescriptor(
        epoch=epoch,
        op=number,
        op_key=op.key,
        kind=op.kind,
        name=op.name[:MAX_TEXT],
        module=op.module[:MAX_TEXT],
        group=op.group[:MAX_TEXT],
        members=op.members,
        dtype=op.dtype[:MAX_TEXT],
        size_class=op.size_class,
        backend=op.backend[:MAX_TEXT],
    )
