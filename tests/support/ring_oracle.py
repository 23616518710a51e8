"""A ring made byte by byte from the words of _layout.py, independently of the agent's own writer and reader."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

RING_BYTES = 8 * 1024 * 1024
RECORDS_AT = 0x3000 + 1024 * 1024
CAPACITY = (RING_BYTES - RECORDS_AT) // 32
START_UNIX_NS = 1_790_000_000 * 10**9
START_MONOTONIC_NS = 5_000 * 10**9


class OracleRing:
    """A ring whose every slot the test decides."""

    def __init__(self, path: Path, *, epoch: int = 0xE90C, pid: int = 4711, **identity: Any) -> None:
        self.path = path
        self.epoch = epoch
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "w+b")  # noqa: SIM115  # closed by the garbage collector of the test
        self._file.truncate(RING_BYTES)
        self._names_at = 0x3000
        self._put(
            0,
            struct.pack(
                "<8sIIIIQQqqQI",
                b"FWRING\x00\x01",
                1,
                32,
                CAPACITY,
                1,
                epoch,
                pid,
                START_UNIX_NS,
                START_MONOTONIC_NS,
                0,
                0,
            ),
        )
        self.identify(run="run-1", node="node-0", rank=0, world_size=1, **identity)

    def _put(self, at: int, what: bytes) -> None:
        self._file.seek(at)
        self._file.write(what)
        self._file.flush()

    def identify(self, **identity: Any) -> None:
        text = json.dumps(identity).encode()
        self._put(68, text)
        self._put(64, struct.pack("<I", len(text)))

    def put(
        self, number: int, *, op: int = 1, value: int | None = None, first_lap: int = -1, last_lap: int = -1
    ) -> None:
        """Write record `number` into its slot; a lap other than its own on either side makes it torn."""
        lap = (number // CAPACITY + 1) % 256
        first = lap if first_lap < 0 else first_lap
        last = lap if last_lap < 0 else last_lap
        body = bytes([first]) + op.to_bytes(3, "little")
        body += struct.pack("<Iqq", number // 10, START_MONOTONIC_NS + number, number if value is None else value)
        body += struct.pack("<I", number % 5) + (0).to_bytes(3, "little") + bytes([last])
        self._put(RECORDS_AT + number % CAPACITY * 32, body)

    def put_many(self, first: int, end: int) -> None:
        """Write records first..end-1, of which each slot keeps the last."""
        for lap_first in range(first, end, CAPACITY):
            self._put_run(max(lap_first, end - CAPACITY, first), min(lap_first + CAPACITY, end))

    def _put_run(self, first: int, end: int) -> None:
        while first < end:
            stop = min(end, (first // CAPACITY + 1) * CAPACITY)
            lap = (first // CAPACITY + 1) % 256
            body = b"".join(
                struct.pack("<IIqqII", 1 << 8 | lap, n // 10, START_MONOTONIC_NS + n, n, n % 5, lap << 24)
                for n in range(first, stop)
            )
            self._put(RECORDS_AT + first % CAPACITY * 32, body)
            first = stop

    def name(self, kind: str, name: str, members: tuple[int, ...] = ()) -> None:
        text = json.dumps(
            {
                "kind": kind,
                "name": name,
                "module": "",
                "group": "",
                "members": members,
                "dtype": "",
                "size_class": 0,
                "backend": "",
            }
        ).encode()
        self._put(self._names_at, struct.pack("<I", len(text)) + text)
        self._names_at += 4 + len(text)

    def cell(self, index: int, *, thread: int, op: int, step: int, start_ns: int, version: int = 2) -> None:
        self._put(0x1000 + 32 * index, struct.pack("<QIIqQ", thread, op, step, start_ns, version))

    def say_goodbye(self, written: int) -> None:
        self._put(56, struct.pack("<Q", written))
        self._put(20, struct.pack("<I", 2))

    def acknowledged(self) -> int:
        return int(struct.unpack("<Q", self.path.read_bytes()[0x2000:0x2008])[0])


def values_in(records: bytes) -> list[int]:
    """Return the value of each record, the slow way."""
    return [struct.unpack_from("<q", records, at + 16)[0] for at in range(0, len(records), 32)]


class LockHolder:
    """A process that holds a ring's lock for its life, as a training process does."""

    def __init__(self, path: Path) -> None:
        program = (
            "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); "
            "print(1, flush=True); sys.stdin.read()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", program, os.fspath(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"1\n"

    def die(self) -> None:
        self._process.kill()
        self._process.communicate()
