"""A ring as its reader sees it. Reads by pread, so that 8 MiB per rank never count as this process's memory."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
from dataclasses import dataclass
from typing import Any

from flightwatch import _layout as layout
from flightwatch._ops import Op
from flightwatch.errors import FlightwatchError

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_U64 = struct.Struct("<Q")
_FLAGS = struct.Struct("<II")  # of CONTROL: pause flag, sample every n-th step


class DamagedRingError(FlightwatchError):
    """A file among the rings is no ring, or one of another version."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one thread is doing: op 0 and start 0 between ops."""

    thread: int
    op: int
    step: int
    start_ns: int


class RingFile:
    """One ring, open for reading and for its control block. What may change is read anew whenever it is asked for."""

    def __init__(self, path: str) -> None:
        """Open the ring.

        Raises:
            DamagedRingError: it is no ring of this version.
            OSError: it cannot be opened.
        """
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._read_header()
        except BaseException:
            os.close(self._fd)
            raise
        self.modified_unix_ns = os.fstat(self._fd).st_mtime_ns  # before we write into it ourselves
        self._names_at = layout.NAMES_OFFSET

    def _read_header(self) -> None:
        head = os.pread(self._fd, layout.HEADER.size, layout.HEADER_OFFSET)
        if len(head) < layout.HEADER.size or os.fstat(self._fd).st_size != layout.RING_BYTES:
            raise DamagedRingError(f"{self.path}: is cut short")
        fields = layout.HEADER.unpack(head)
        magic, version, record_bytes = fields[:3]
        self.capacity: int = fields[3]
        self.epoch: int = fields[5]
        self.pid: int = fields[6]
        self.start_unix_ns: int = fields[7]
        self.start_monotonic_ns: int = fields[8]
        if magic != layout.MAGIC or version != layout.LAYOUT_VERSION:
            raise DamagedRingError(f"{self.path}: is no ring of layout {layout.LAYOUT_VERSION}")
        if record_bytes != layout.RECORD_BYTES or self.capacity != layout.CAPACITY:
            raise DamagedRingError(f"{self.path}: has records of another size")

    def close(self) -> None:
        """Close the file. We hold no lock on it that this could release."""
        os.close(self._fd)

    def unlink(self) -> None:
        """Remove the file; nothing happens if somebody else did."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def read_identity(self) -> dict[str, Any] | None:
        """Return the identity, None while the writer is rewriting it."""
        head = os.pread(self._fd, layout.CELLS_OFFSET, layout.HEADER_OFFSET)
        length = layout.HEADER.unpack_from(head)[-1]
        try:
            identity = json.loads(head[layout.HEADER.size : layout.HEADER.size + length])
        except ValueError:
            return None
        return identity if isinstance(identity, dict) else None

    def written_at_close(self) -> int | None:
        """Return how many records were written in all, None if the process did not say goodbye (yet)."""
        fields = layout.HEADER.unpack(os.pread(self._fd, layout.HEADER.size, layout.HEADER_OFFSET))
        return int(fields[9]) if fields[4] == layout.STATE_CLOSED else None

    def read_cells(self) -> list[Cell]:
        """Return what the threads are doing; a cell that is just being written is left out."""
        body = os.pread(self._fd, layout.CELL_COUNT * layout.CELL.size, layout.CELLS_OFFSET)
        return [
            Cell(thread, op, step, start_ns)
            for thread, op, step, start_ns, version in layout.CELL.iter_unpack(body)
            if thread and version % 2 == 0
        ]

    def read_new_ops(self) -> list[Op]:
        """Return the descriptors appended since the last call, in order of their ids."""
        found: list[Op] = []
        while self._names_at + layout.NAME_LENGTH.size <= layout.NAMES_END:
            # one read for many entries: a whole table is 1 MiB
            body = self._read_names(65_536)
            (length,) = layout.NAME_LENGTH.unpack_from(body)
            if layout.NAME_LENGTH.size + length > len(body):  # one entry with very many members
                body = self._read_names(layout.NAME_LENGTH.size + length)
            taken = self._parse_names(body, found)
            if not taken:
                break
            self._names_at += taken
        return found

    def _read_names(self, n_bytes: int) -> bytes:
        return os.pread(self._fd, min(n_bytes, layout.NAMES_END - self._names_at), self._names_at)

    def _parse_names(self, body: bytes, found: list[Op]) -> int:
        at = 0
        while at + layout.NAME_LENGTH.size <= len(body):
            (length,) = layout.NAME_LENGTH.unpack_from(body, at)
            end = at + layout.NAME_LENGTH.size + length
            if not length or end > len(body):
                break
            found.append(Op.from_json(body[at + layout.NAME_LENGTH.size : end]))
            at = end
        return at

    def read_records(self, slot: int, count: int) -> bytes:
        """Return the bytes of `count` slots from `slot` on; they must not pass the end of the ring."""
        return os.pread(self._fd, count * layout.RECORD_BYTES, layout.RECORDS_OFFSET + slot * layout.RECORD_BYTES)

    def read_acknowledged(self) -> int:
        """Return below which record number everything is acknowledged."""
        return int(_U64.unpack(os.pread(self._fd, _U64.size, layout.CONTROL_OFFSET))[0])

    def write_acknowledged(self, records: int) -> None:
        """Say in the control block that all records below `records` are acknowledged."""
        os.pwrite(self._fd, _U64.pack(records), layout.CONTROL_OFFSET)

    def write_sampling(self, *, pause: bool, every: int) -> None:
        """Ask the hooks to pause, or to record every n-th step only."""
        os.pwrite(self._fd, _FLAGS.pack(int(pause), every), layout.CONTROL_OFFSET + _U64.size)

    def owner_is_gone(self) -> bool:
        """Return whether the process that wrote this ring is no more: its lock has lapsed.

        Asks without taking the lock, which would disturb the owner; works across PID namespaces.
        """
        ask = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        try:
            answer = fcntl.fcntl(self._fd, fcntl.F_GETLK, ask)
        except OSError:  # a file system without locks
            return _process_is_gone(self.pid)
        return bool(_FLOCK.unpack(answer)[0] == fcntl.F_UNLCK)


def _process_is_gone(pid: int) -> bool:
    try:
        os.close(os.pidfd_open(pid))
    except ProcessLookupError:
        return True
    except OSError:  # not ours to see
        return False
    return False
