"""Messages as a forwarder of one small node would send them, and the collector's server on a free port."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np

from collector.batch import Batch
from collector.batcher import Batcher
from collector.errors import RefusedRowsError
from collector.server import CollectorServer
from collector.service import TelemetryService
from flightwatch._layout import CAPACITY, RECORD_DTYPE
from flightwatch._ops import FORWARD, Op
from flightwatch.wire import flightwatch_pb2 as wire

START_UNIX_NS = 1_790_000_000 * 10**9
START_MONOTONIC_NS = 5_000 * 10**9
EPOCH = 0xABCDEF0123456789


def a_start(
    epoch: int = EPOCH, *, rank: int = 0, run: str = "run-1", world_size: int = 4, **more: Any
) -> wire.RankStart:
    fields: dict[str, Any] = {
        "node": "node-0",
        "pid": 100 + rank,
        "start_unix_ns": START_UNIX_NS,
        "start_monotonic_ns": START_MONOTONIC_NS,
        "ring_capacity": CAPACITY,
        **more,
    }
    return wire.RankStart(epoch=epoch, run=run, rank=rank, world_size=world_size, **fields)


def an_op(epoch: int = EPOCH, op: int = 1, *, name: str = "layers.0", kind: str = FORWARD) -> wire.OpDescriptor:
    return wire.OpDescriptor(epoch=epoch, op=op, op_key=Op(kind, name).key, kind=kind, name=name)


def packed_records(count: int, *, first: int = 0, op: int = 1, step: int = 0) -> bytes:
    """Return records as a ring holds them, all valid."""
    numbers = np.arange(first, first + count)
    laps = ((numbers // CAPACITY + 1) & 0xFF).astype(np.uint32)
    records = np.zeros(count, RECORD_DTYPE)
    records["lap_op"] = np.uint32(op << 8) | laps
    records["step"] = step + numbers // 10
    records["start_ns"] = START_MONOTONIC_NS + numbers * 1000
    records["value"] = 500 + numbers
    records["seq"] = numbers % 7
    records["aux_lap"] = (laps << np.uint32(24)) | np.uint32(3)
    return records.tobytes()


def a_frame(number: int = 1, *, count: int = 5, epoch: int = EPOCH, first: int = 0) -> wire.Frame:
    """Return a frame that introduces a process and one op, and holds `count` records."""
    frame = wire.Frame(frame=number, starts=[a_start(epoch)], ops=[an_op(epoch)])
    frame.slices.add(epoch=epoch, first_record=first, records=packed_records(count, first=first))
    return frame


class FakeSink:
    """Keeps batches in memory; fails while `broken` is set; `gate` holds a write back until it is set."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.broken = False
        self.refuses: set[int] = set()  # record numbers for which a batch is refused
        self.failures = 0
        self.gate = threading.Event()
        self.gate.set()

    def write(self, batch: Batch) -> None:
        self.gate.wait(30)
        if self.broken:
            self.failures += 1
            raise OSError("the store is away")
        ops = batch.tables.get("ops")
        if ops is not None and self.refuses.intersection(ops["record"].tolist()):
            raise RefusedRowsError("a store refuses its rows: scripted")
        self.batches.append(batch)

    def rows(self) -> list[tuple[int, int]]:
        """Return (epoch, record) of every row written, repeats and all."""
        found = []
        for batch in self.batches:
            ops = batch.tables.get("ops")
            if ops is not None:
                found += list(zip(ops["epoch"].tolist(), ops["record"].tolist(), strict=True))
        return found


class RunningCollector:
    """A collector's server in a thread of its own, on a free port or the one given."""

    def __init__(self, sink: FakeSink, *, port: int = 0, interval_seconds: float = 0.02) -> None:
        self._sink = sink
        self._listen = f"127.0.0.1:{port}"
        self._interval_seconds = interval_seconds
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        if not self._ready.wait(30):
            raise AssertionError("the collector did not start")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    @property
    def port(self) -> int:
        return self._server.port

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        listening = asyncio.Event()
        batcher = Batcher(self._sink, interval_seconds=self._interval_seconds)
        self._server = CollectorServer(TelemetryService(batcher, name="test"), batcher)
        running = asyncio.create_task(self._server.run(self._listen, self._stop, listening=listening))
        await asyncio.wait({asyncio.create_task(listening.wait()), running}, return_when=asyncio.FIRST_COMPLETED)
        self._ready.set()
        await running
