"""Packs what a forwarder has to say into frames that stay below the collector's limit for one message."""

from __future__ import annotations

from collections.abc import Iterable

from flightwatch._layout import RECORD_BYTES
from flightwatch.wire import flightwatch_pb2 as wire

# A message may have 1 MiB; the rest is room for the frame's own fields and the envelope.
MAX_FRAME_BYTES = 900_000
_ENVELOPE_BYTES = 12  # tag and length of one element, and the fields a frame has of its own
_SLICE_BYTES = 40  # a slice without its records


class FrameBuilder:
    """Collects starts, ops, slices, cells, metrics, gaps and ends, in order, and gives them back as frames.

    A collector reads a frame in this very order: starts, ops, slices, cells, metrics, gaps, ends. What is added first
    is in the same frame or an earlier one; so a descriptor added before a slice is known before the slice is read.
    """

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        if limit_bytes < _SLICE_BYTES + RECORD_BYTES:
            raise ValueError(f"limit_bytes={limit_bytes}: not even one record fits")
        self._limit = limit_bytes
        self._done: list[wire.Frame] = []
        self._frame = wire.Frame()
        self._bytes = 0

    def add_start(self, start: wire.RankStart) -> None:
        """Add a process that began, or whose identity became better known."""
        self._make_room(start.ByteSize())
        self._frame.starts.append(start)

    def add_op(self, op: wire.OpDescriptor) -> None:
        """Add the meaning of an op id; before the first slice that uses it."""
        self._make_room(op.ByteSize())
        self._frame.ops.append(op)

    def add_slice(self, epoch: int, first_record: int, records: bytes | memoryview) -> None:
        """Add consecutive records of one epoch, cut into several slices where they do not fit one frame.

        Args:
            epoch: the process they belong to.
            first_record: number of the first one.
            records: n * 32 bytes.
        """
        done = 0
        while done < len(records):
            room = (self._limit - self._bytes - _SLICE_BYTES) // RECORD_BYTES * RECORD_BYTES
            if room <= 0:
                self._close()
                continue
            piece = bytes(records[done : done + room])
            self._frame.slices.add(epoch=epoch, first_record=first_record + done // RECORD_BYTES, records=piece)
            self._bytes += len(piece) + _SLICE_BYTES
            done += len(piece)

    def add_cell(self, cell: wire.OpenCell) -> None:
        """Add what a thread is doing now."""
        self._make_room(cell.ByteSize())
        self._frame.cells.append(cell)

    def add_metric(self, metric: wire.Metric) -> None:
        """Add readings of one metric of one device."""
        self._make_room(metric.ByteSize())
        self._frame.metrics.append(metric)

    def add_gap(self, gap: wire.Gap) -> None:
        """Add records that were lost on the way."""
        self._make_room(gap.ByteSize())
        self._frame.gaps.append(gap)

    def add_end(self, end: wire.RankEnd) -> None:
        """Add the end of a process; after its last slice."""
        self._make_room(end.ByteSize())
        self._frame.ends.append(end)

    def take(self) -> list[wire.Frame]:
        """Return everything added since the last call, as frames to be sent in this order."""
        if self._bytes:
            self._close()
        done, self._done = self._done, []
        return done

    def _make_room(self, n_bytes: int) -> None:
        n_bytes += _ENVELOPE_BYTES
        if self._bytes and self._bytes + n_bytes > self._limit:
            self._close()
        self._bytes += n_bytes

    def _close(self) -> None:
        self._done.append(self._frame)
        self._frame = wire.Frame()
        self._bytes = 0


def greeting_frames(starts: Iterable[wire.RankStart], ops: Iterable[wire.OpDescriptor]) -> list[wire.Frame]:
    """Return the frames that open a stream: every process known, then every op."""
    builder = FrameBuilder()
    for start in starts:
        builder.add_start(start)
    for op in ops:
        builder.add_op(op)
    return builder.take()
