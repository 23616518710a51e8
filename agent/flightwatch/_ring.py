"""The mmap ring of fixed records: black box, spool and wire format in one. _layout.py says where every byte lies."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import mmap
import os
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from flightwatch import _layout as layout
from flightwatch._directory import make_rings_directory
from flightwatch._ops import Op

_RECORDS = layout.RECORDS_OFFSET
_BYTES = layout.RECORD_BYTES
_CAPACITY = layout.CAPACITY
_PACK = layout.RECORD.pack
_IDENTITY_ROOM = layout.CELLS_OFFSET - layout.HEADER.size
_IDENTITY_LENGTH_OFFSET = layout.HEADER.size - 4
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class _Void:
    """What a closed ring, or a forked child, writes to instead of the shared mapping."""

    __slots__ = ()

    def __setitem__(self, where: slice, what: bytes) -> None:
        return None

    def __getitem__(self, where: slice) -> bytes:
        return bytes(where.stop - where.start)

    def close(self) -> None:
        return None


class RingWriter:
    """One process's ring. Any thread may write; records take no lock, because a fork could inherit it.

    Args:
        directory: FLIGHTWATCH_DIR; the ring is `rings/<epoch:016x>.ring` in it.
        identity: what goes into the header as JSON; at most 4 KiB less the header.
        epoch: random 64 bits, this process's life.

    `shared` is the mapping. A cell in it is written in one assignment, with an even version; readers compare two reads.

    Raises: OSError when the file cannot be made in full (no room, no right).
    """

    def __init__(self, directory: str, identity: Mapping[str, Any], *, epoch: int) -> None:
        self.epoch = epoch
        self.path = os.path.join(make_rings_directory(directory), f"{epoch:016x}.ring")
        self._count = itertools.count()
        self._name_at = layout.NAMES_OFFSET
        self.names_lock = threading.Lock()  # taken for a new name only, and made anew in a forked child
        self._free_cells = deque(range(layout.CELL_COUNT))
        self.shared: Any = _Void()
        self._fd = -1
        self.start_unix_ns = time.time_ns()
        self.start_monotonic_ns = time.monotonic_ns()
        self._create(identity)
        _living.add(self)

    def _create(self, identity: Mapping[str, Any]) -> None:
        temporary = f"{self.path[: -len('.ring')]}.tmp"
        self._fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # a sparse file would kill the process with SIGBUS on a full disk; this fails here, with an errno
            os.posix_fallocate(self._fd, 0, layout.RING_BYTES)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.shared = mmap.mmap(self._fd, layout.RING_BYTES)
            header = (layout.MAGIC, layout.LAYOUT_VERSION, _BYTES, _CAPACITY, layout.STATE_RUNNING, self.epoch)
            times = (os.getpid(), self.start_unix_ns, self.start_monotonic_ns)
            self.shared[0 : layout.HEADER.size] = layout.HEADER.pack(*header, *times, 0, 0)
            self.rewrite_identity(identity)
            os.rename(temporary, self.path)
        except BaseException:
            self._let_go()
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def rewrite_identity(self, identity: Mapping[str, Any]) -> None:
        """Put `identity` into the header; its length goes last and is 0 meanwhile, lest a reader take half."""
        text = json.dumps(identity, separators=(",", ":")).encode()
        if len(text) > _IDENTITY_ROOM:
            raise ValueError(f"identity of {len(text)} bytes does not fit {_IDENTITY_ROOM}")
        at = layout.HEADER.size
        self.shared[_IDENTITY_LENGTH_OFFSET:at] = _U32.pack(0)
        self.shared[at : at + len(text)] = text
        self.shared[_IDENTITY_LENGTH_OFFSET:at] = _U32.pack(len(text))

    def write(self, op: int, step: int, start_ns: int, value: int, seq: int = 0, aux: int = 0) -> None:
        """Write one record into the next slot: `op` id (24 bits), `step` and `seq` (32), `value` (i64), `aux` (24)."""
        number = next(self._count)
        lap = (number // _CAPACITY + 1) & 0xFF
        at = _RECORDS + number % _CAPACITY * _BYTES
        # one slice assignment of packed bytes; pack_into writes zeros first, which a reader could see
        self.shared[at : at + _BYTES] = _PACK(op << 8 | lap, step, start_ns, value, seq, aux | lap << 24)

    def append_name(self, op: int, descriptor: Op) -> bool:
        """Add the next entry of the name table; False when the table is full. Hold `names_lock`.

        An entry's place is its id, counted from 1, so `op` must be the count of entries plus one.
        """
        text = descriptor.to_json()
        body = self._name_at + layout.NAME_LENGTH.size
        if body + len(text) > layout.NAMES_END or op >= layout.MAX_OPS:
            return False
        self.shared[body : body + len(text)] = text
        self.shared[self._name_at : body] = layout.NAME_LENGTH.pack(len(text))
        self._name_at = body + len(text)
        return True

    def claim_cell(self) -> int:
        """Return the offset of a cell for one more thread, or -1 when all are taken."""
        try:
            return layout.CELLS_OFFSET + self._free_cells.popleft() * layout.CELL.size
        except IndexError:
            return -1

    def release_cell(self, at: int) -> None:
        """Give back a cell of a thread that ended."""
        self.shared[at : at + layout.CELL.size] = bytes(layout.CELL.size)
        self._free_cells.append((at - layout.CELLS_OFFSET) // layout.CELL.size)

    def read_control(self) -> tuple[int, int, int]:
        """Return (records acknowledged, pause flag, sample every n-th step) as the forwarder last wrote them."""
        end = layout.CONTROL_OFFSET + layout.CONTROL.size
        acknowledged, pause, every = layout.CONTROL.unpack(self.shared[layout.CONTROL_OFFSET : end])
        return acknowledged, pause, every

    def close(self) -> None:
        """Say goodbye: the count of records first, then the state; later writes go nowhere."""
        written = next(self._count)
        shared, self.shared = self.shared, _Void()
        if isinstance(shared, _Void):
            return
        at = layout.RECORDS_WRITTEN_OFFSET
        shared[at : at + 8] = _U64.pack(written)
        shared[layout.STATE_OFFSET : layout.STATE_OFFSET + 4] = _U32.pack(layout.STATE_CLOSED)
        shared.close()
        self._let_go()

    def fall_silent(self) -> None:
        """In a forked child: leave the parent's mapping alone. Its lock is not inherited, so closing is harmless."""
        self.names_lock = threading.Lock()
        shared, self.shared = self.shared, _Void()
        with contextlib.suppress(Exception):
            shared.close()
        self._let_go()

    def _let_go(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


_living: weakref.WeakSet[RingWriter] = weakref.WeakSet()


def _silence_child() -> None:
    for ring in list(_living):
        ring.fall_silent()


os.register_at_fork(after_in_child=_silence_child)
