"""Frames on disk: what no collector took in time. Whole files, each understandable on its own; the oldest go when full.

A file is MAGIC, then frames, each behind its length and CRC-32. The starts and descriptors of its processes come first.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator

from flightwatch._layout import RECORD_BYTES
from flightwatch.wire import flightwatch_pb2 as wire

MAGIC = b"FWSPOOL\x01"
SUFFIX = ".spool"
FILE_BYTES = 8 << 20
LIMIT_BYTES = 1 << 30  # per node
_HEAD = struct.Struct("<II")


class Spool:
    """The spool of one node. One writer: its forwarder.

    Args:
        directory: made when first needed.
        greeting: starts and descriptors known now; each file begins with them.
        limit_bytes: of all files together.
    """

    def __init__(
        self,
        directory: str,
        greeting: Callable[[], Iterable[wire.Frame]],
        *,
        limit_bytes: int = LIMIT_BYTES,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._directory = directory
        self._greeting = greeting
        self._limit_bytes = limit_bytes
        self._file_bytes = file_bytes
        self._fd = -1
        self._path = ""
        self._size = 0

    def write(self, frame: wire.Frame) -> None:
        """Append a frame. Raises OSError if the disk does not take it."""
        if self._fd < 0:
            self._open()
        self._append(frame)
        if self._size >= self._file_bytes:
            self.close_file()

    def close_file(self) -> None:
        """End the present file, so that it may be shipped; it is on disk then."""
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._path = ""
            self._size = 0

    def files(self) -> list[str]:
        """Return the paths of all finished files, oldest first."""
        try:
            names = sorted(name for name in os.listdir(self._directory) if name.endswith(SUFFIX))
        except FileNotFoundError:
            return []
        return [path for name in names if (path := os.path.join(self._directory, name)) != self._path]

    def is_empty(self) -> bool:
        """Return whether nothing waits, neither in finished files nor in the present one."""
        return self._fd < 0 and not self.files()

    def find_overflow(self, keep: str = "") -> str | None:
        """Return the file to drop next because the spool is over its limit, never `keep`; None if nothing is to go."""
        files = self.files()
        if self._size + sum(_size_of(path) for path in files) <= self._limit_bytes:
            return None
        return next((path for path in files if path != keep), None)

    def _open(self) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        # wall time only orders the names
        path = os.path.join(self._directory, f"{time.time_ns():020d}-{os.getpid()}{SUFFIX}")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._path = path
        self._size = 0
        try:
            self._write_whole(MAGIC)
            for frame in self._greeting():
                self._append(frame)
        except OSError:
            # what followed an incomplete beginning could not be read
            if self._fd >= 0:
                os.close(self._fd)
            self._fd, self._path, self._size = -1, "", 0
            drop(path)
            raise

    def _append(self, frame: wire.Frame) -> None:
        body = frame.SerializeToString()
        self._write_whole(_HEAD.pack(len(body), zlib.crc32(body)) + body)

    def _write_whole(self, entry: bytes) -> None:
        written = os.write(self._fd, entry)
        self._size += written
        if written < len(entry):  # a full disk: readers stop at the torn entry, so nothing may follow it
            self.close_file()
            raise OSError(f"{self._directory}: the disk is full")


def read_frames(path: str) -> Iterator[wire.Frame]:
    """Yield a file's frames, up to the first that a crash left torn."""
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, checksum = _HEAD.unpack(head)
            body = file.read(length)
            if len(body) < length or zlib.crc32(body) != checksum:
                return
            yield wire.Frame.FromString(body)


def drop(path: str) -> None:
    """Remove a file; nothing happens if it is not there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def lost_frame(path: str, reason: str) -> wire.Frame:
    """Return the frame that stands for a file to be dropped: one gap per process, and what the file said of starts,
    ends and gaps before.
    """
    lost = wire.Frame()
    starts: dict[int, wire.RankStart] = {}
    gaps: dict[int, wire.Gap] = {}
    for frame in read_frames(path):
        starts.update((start.epoch, start) for start in frame.starts)
        lost.gaps.extend(frame.gaps)
        lost.ends.extend(frame.ends)
        add_lost_slices(gaps, frame, reason)
    lost.starts.extend(starts.values())
    lost.gaps.extend(gap for epoch, gap in gaps.items() if epoch in starts)
    return lost


def add_lost_slices(gaps: dict[int, wire.Gap], frame: wire.Frame, reason: str) -> None:
    """Add a frame's records to the gaps by epoch: first, last and count."""
    for piece in frame.slices:
        count = len(piece.records) // RECORD_BYTES
        if not count:
            continue
        gap = gaps.setdefault(piece.epoch, wire.Gap(epoch=piece.epoch, reason=reason, first_record=piece.first_record))
        gap.first_record = min(gap.first_record, piece.first_record)
        gap.last_record = max(gap.last_record, piece.first_record + count - 1)
        gap.count += count


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
