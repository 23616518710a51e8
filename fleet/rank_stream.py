"""The simulated ranks as a collector sees them: starts, descriptors, records, cells, metrics and ends, as frames."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fleet.record_packer import NS, RecordPacker, Samples
from fleet.stage_program import PlayedStep, StageProgram, ops_of
from fleet.timeline import StepTimes, Timeline
from fleet.topology import Topology
from flightwatch._layout import RECORD_BYTES
from flightwatch._ops import Op
from flightwatch.forward.frames import FrameBuilder, greeting_frames
from flightwatch.wire import flightwatch_pb2 as wire

THREAD = 1  # each simulated rank has one
PID = 4242


@functools.lru_cache(maxsize=1 << 16)
def _key_of(op: Op) -> int:
    return op.key  # hashing the members of a group anew for each of them took most of a greeting's time


class Sender(Protocol):
    """What takes frames to a collector: `flightwatch.forward.link.Link`, or a test's list."""

    def submit(self, frame: wire.Frame, on_ack: Callable[[], None] | None = None) -> None:
        """Take a frame over; `on_ack` is called once it is acknowledged."""

    def has_room(self) -> bool:
        """Return whether more may be submitted."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The run that the ranks belong to, and their clocks read together at the start."""

    run: str
    run_name: str
    start_unix_ns: int
    start_monotonic_ns: int
    attempt: int = 0


class RankStream:
    """Builds the frames of all ranks and submits them."""

    def __init__(
        self, topology: Topology, timeline: Timeline, identity: RunIdentity, epochs: NDArray[np.uint64]
    ) -> None:
        self._topology = topology
        self._identity = identity
        self._epochs: list[int] = epochs.tolist()
        n_micro = len(timeline.programs[0]) // 2
        self._programs = [
            StageProgram(stage, slots, topology, n_micro) for stage, slots in enumerate(timeline.programs)
        ]
        self._packers = [RecordPacker(program, identity.start_monotonic_ns) for program in self._programs]
        self._builder = FrameBuilder()
        self._waiting_records = 0
        self.records_submitted = 0
        self.records_acknowledged = 0

    @property
    def records_written(self) -> int:
        """Return how many records all ranks have written."""
        per_stage = self._topology.dp * self._topology.tp
        return sum(packer.records_written for packer in self._packers) * per_stage

    def greeting(self) -> Iterable[wire.Frame]:
        """Return what opens every stream: all ranks, then all descriptors."""
        return greeting_frames(
            (self._start(rank) for rank in range(self._topology.n_ranks)),
            (op for rank in range(self._topology.n_ranks) for op in self._descriptors(rank)),
        )

    def add_step(self, step: int, times: StepTimes, samples: Samples) -> None:
        """Add every rank's records of one step."""
        per_stage = self._topology.dp * self._topology.tp
        for stage, packer in enumerate(self._packers):
            first_record = packer.records_written
            records = packer.pack(step, times, samples)
            packed = records.tobytes()
            row_bytes = records.shape[1] * records.itemsize
            for row in range(per_stage):
                piece = packed[row * row_bytes : (row + 1) * row_bytes]
                self._builder.add_slice(self._epochs[stage * per_stage + row], first_record, piece)

    def add_cells(self, played: Sequence[PlayedStep], elapsed_seconds: float, unix_ns: int) -> None:
        """Add what every rank is doing at a moment; `played` are the steps in which ranks may be then, in order."""
        per_stage = self._topology.dp * self._topology.tp
        for stage, program in enumerate(self._programs):
            step, op, begin = program.doing(played, elapsed_seconds)
            begin_ns = np.where(op > 0, np.rint(begin * NS).astype(np.int64) + self._identity.start_monotonic_ns, 0)
            for row, (at, number, start_ns) in enumerate(
                zip(step.tolist(), op.tolist(), begin_ns.tolist(), strict=True)
            ):
                cell = wire.OpenCell(
                    epoch=self._epochs[stage * per_stage + row],
                    thread=THREAD,
                    op=number,
                    step=at,
                    start_monotonic_ns=start_ns,
                    seen_unix_ns=unix_ns,
                )
                self._builder.add_cell(cell)

    def add_metrics(self, readings: Mapping[str, NDArray[np.float64]], unix_ns: int) -> None:
        """Add one reading per node and metric."""
        for name, values in readings.items():
            for node, value in enumerate(values.tolist()):
                node_name = self._topology.node_name(node)
                self._builder.add_metric(wire.Metric(node=node_name, name=name, unix_ns=[unix_ns], value=[value]))

    def add_ends(self, unix_ns: int) -> None:
        """Add the clean end of every rank."""
        per_stage = self._topology.dp * self._topology.tp
        for rank, epoch in enumerate(self._epochs):
            written = self._packers[rank // per_stage].records_written
            self._builder.add_end(wire.RankEnd(epoch=epoch, how="clean", records_written=written, unix_ns=unix_ns))

    def flush(self, sender: Sender, unix_ns: int) -> None:
        """Submit everything added."""
        for frame in self._builder.take():
            frame.sent_unix_ns = unix_ns
            n_records = sum(len(piece.records) for piece in frame.slices) // RECORD_BYTES
            self.records_submitted += n_records
            sender.submit(frame, functools.partial(self._acknowledged, n_records))

    def _acknowledged(self, n_records: int) -> None:
        self.records_acknowledged += n_records  # only the link's thread calls this

    def _start(self, rank: int) -> wire.RankStart:
        identity = self._identity
        return wire.RankStart(
            epoch=self._epochs[rank],
            run=identity.run,
            run_name=identity.run_name,
            attempt=identity.attempt,
            rank=rank,
            world_size=self._topology.n_ranks,
            local_rank=rank % self._topology.ranks_per_node,
            node=self._topology.node_of(rank),
            pid=PID,
            start_unix_ns=identity.start_unix_ns,
            start_monotonic_ns=identity.start_monotonic_ns,
            coordinates=self._topology.coordinates(rank),
            sources={"rank": "fleet", "node": "fleet"},
            framework="fleet (simulated)",
        )

    def _descriptors(self, rank: int) -> Iterable[wire.OpDescriptor]:
        for number, op in ops_of(self._topology, rank).items():
            yield wire.OpDescriptor(
                epoch=self._epochs[rank],
                op=number,
                op_key=_key_of(op),
                kind=op.kind,
                name=op.name,
                module=op.module,
                group=op.group,
                members=op.members,
                dtype=op.dtype,
                size_class=op.size_class,
                backend=op.backend,
            )
