"""An independent reader of rings, the oracle of the agent's tests, written from _layout.py's words."""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flightwatch import _layout as layout


@dataclass
class Ring:
    """What one ring holds. `records` in order of their number, laps and all, only untorn ones."""

    state: int
    epoch: int
    pid: int
    start_unix_ns: int
    start_monotonic_ns: int
    records_written: int
    identity: dict[str, Any]
    ops: dict[int, dict[str, Any]]
    records: list[dict[str, Any]]
    cells: list[dict[str, int]]
    torn: int

    def kind(self, name: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == name]

    def counts(self) -> Counter[tuple[str, str]]:
        return Counter((record["kind"], record["module"] or record["name"]) for record in self.records)


def read_ring(path: Path | str) -> Ring:
    data = Path(path).read_bytes()
    assert len(data) == 8 << 20
    magic, version, record_bytes, capacity, state, epoch, pid, unix_ns, monotonic_ns, written, length = (
        struct.unpack_from("<8sIIIIQQqqQI", data, 0)
    )
    assert (magic, version, record_bytes) == (layout.MAGIC, 1, 32)
    ops = _names(data)
    rows = np.frombuffer(data, dtype=layout.RECORD_DTYPE, count=capacity, offset=layout.RECORDS_OFFSET)
    first = rows["lap_op"] & 0xFF
    last = rows["aux_lap"] >> 24
    torn = int((first != last).sum())
    records = [
        _record(rows[i], int(first[i]), int(i), capacity, ops) for i in np.flatnonzero((first == last) & (first > 0))
    ]
    records.sort(key=lambda record: record["number"])
    return Ring(
        state=state,
        epoch=epoch,
        pid=pid,
        start_unix_ns=unix_ns,
        start_monotonic_ns=monotonic_ns,
        records_written=written,
        identity=json.loads(data[layout.HEADER.size : layout.HEADER.size + length]) if length else {},
        ops=ops,
        records=records,
        cells=_cells(data),
        torn=torn,
    )


def read_all(directory: Path | str) -> list[Ring]:
    """Every ring of a node's directory, by rank."""
    rings = [read_ring(path) for path in Path(directory, "rings").glob("*.ring")]
    return sorted(rings, key=lambda ring: int(ring.identity["rank"]))


def _record(row: Any, lap: int, slot: int, capacity: int, ops: dict[int, dict[str, Any]]) -> dict[str, Any]:
    op = int(row["lap_op"]) >> 8
    known = ops.get(op, {"kind": "other", "name": "", "module": ""})
    value = int(row["value"])
    return {
        "number": (lap - 1) * capacity + slot,
        "op": op,
        **known,
        "step": int(row["step"]),
        "start_ns": int(row["start_ns"]),
        "value": struct.unpack("<d", struct.pack("<q", value))[0] if known["kind"] == "sample" else value,
        "seq": int(row["seq"]),
        "aux": int(row["aux_lap"]) & 0xFFFFFF,
    }


def _names(data: bytes) -> dict[int, dict[str, Any]]:
    ops: dict[int, dict[str, Any]] = {}
    at = layout.NAMES_OFFSET
    while at + 4 <= layout.NAMES_END:
        (length,) = struct.unpack_from("<I", data, at)
        if length == 0:
            break
        ops[len(ops) + 1] = json.loads(data[at + 4 : at + 4 + length])
        at += 4 + length
    return ops


def _cells(data: bytes) -> list[dict[str, int]]:
    names = ("thread", "op", "step", "start_ns", "version")
    rows = [struct.unpack_from("<QIIqQ", data, layout.CELLS_OFFSET + i * 32) for i in range(128)]
    return [dict(zip(names, row, strict=True)) for row in rows if row[0]]
