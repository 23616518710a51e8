"""Which records a rank of one pipeline stage writes in a step, in which order: the template that packing fills."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleet.durations import Seconds
from fleet.schedule import FORWARD, Slot
from fleet.timeline import StepTimes
from fleet.topology import Topology
from flightwatch import _ops
from flightwatch._ops import Op, size_class

LAYERS_PER_STAGE = 8
# Bytes moved, of a model of 13 B parameters in bfloat16: one micro-batch's activations, and one rank's gradients.
ACTIVATION_BYTES = 64 << 20
GRADIENT_BYTES = 768 << 20
BACKEND = "nccl"
# Op ids within every epoch; 0 is "other".
LOADER, STEP, FORWARD_OP, BACKWARD_OP, OPTIMIZER, LOSS, GRAD_NORM = range(1, 8)
RECEIVE_ISSUE, RECEIVE, TENSOR_ISSUE, TENSOR, GRADIENT_ISSUE, GRADIENT = range(8, 14)

Moments = Callable[[StepTimes], Seconds]


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the template: what op, when, and how its value and sequence number come about.

    It runs from moment `begin` to moment `end`, as (dp, tp) arrays of seconds; `fixed`, where given, is its value.
    `counter` names the group whose sequence number it bears, `nth` is the op's place in it within a step.
    """

    op: int
    micro: int
    begin: Moments
    end: Moments
    fixed: int | None = None
    counter: str = ""
    nth: int = 0


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """A step and its moments."""

    step: int
    times: StepTimes


class StageProgram:
    """The template of one stage. `entries` are in the order in which a rank writes them."""

    def __init__(self, stage: int, program: Sequence[Slot], topology: Topology, n_micro: int) -> None:
        self.stage = stage
        self._n_stages = topology.pp
        self._tensor = itertools.count()
        self._receive = itertools.count()
        self.entries: list[Entry] = [Entry(LOADER, 0, lambda t: t.begin[stage], lambda t: t.loader_end[stage])]
        for slot in program:
            self.entries += self._pass(slot, slot.direction * n_micro + slot.micro)
        self.entries += self._end_of_step()
        self._spans = [
            entry for entry in self.entries if entry.fixed is None and entry.op not in (STEP, LOSS, GRAD_NORM)
        ]
        self.op = _column(self.entries, lambda entry: entry.op)
        self.micro = _column(self.entries, lambda entry: entry.micro)
        self.nth = _column(self.entries, lambda entry: entry.nth)
        self.per_step = _column(self.entries, lambda entry: _count(self.entries, entry.counter))

    def __len__(self) -> int:
        return len(self.entries)

    def row_of(self, op: int) -> int:
        """Return where the only record of this op stands."""
        return int(np.flatnonzero(self.op == op)[0])

    def doing(
        self, played: Sequence[PlayedStep], seconds: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return the step, the op (0: between ops) and the op's beginning of each rank (dp * tp,) at a moment."""
        shape = played[0].times.begin.shape[1:]
        step = np.full(shape, played[0].step)
        op = np.zeros(shape, dtype=np.int64)
        begin = np.zeros(shape)
        for number, times in ((each.step, each.times) for each in played):
            step[times.begin[self.stage] <= seconds] = number
            for entry in self._spans:
                began = entry.begin(times)
                inside = np.broadcast_to((began <= seconds) & (seconds < entry.end(times)), shape)
                op[inside] = entry.op
                begin[inside] = np.broadcast_to(began, shape)[inside]
        return step.reshape(-1), op.reshape(-1), begin.reshape(-1)

    def _pass(self, slot: Slot, index: int) -> list[Entry]:
        stage = self.stage
        receive: list[Entry] = []
        if slot.source(self._n_stages) is not None:
            receive = _collective(
                (RECEIVE_ISSUE, RECEIVE),
                slot.micro,
                lambda t: t.receive_issue[stage, index],
                lambda t: t.compute_begin[stage, index],
                ("pipeline", next(self._receive), ACTIVATION_BYTES),
            )
        compute = Entry(
            FORWARD_OP if slot.direction == FORWARD else BACKWARD_OP,
            slot.micro,
            lambda t: t.compute_begin[stage, index],
            lambda t: t.compute_end[stage, index],
        )
        reduce = _collective(
            (TENSOR_ISSUE, TENSOR),
            slot.micro,
            lambda t: t.compute_end[stage, index],
            lambda t: t.tensor_end[stage, index][:, None],
            ("tensor", next(self._tensor), ACTIVATION_BYTES),
        )
        return [*receive, compute, *reduce]

    def _end_of_step(self) -> list[Entry]:
        stage = self.stage

        def reduced(times: StepTimes) -> Seconds:
            moment: Seconds = times.gradient_end[stage, None]
            return moment

        def ended(times: StepTimes) -> Seconds:
            moment: Seconds = times.end[stage]
            return moment

        gradient = _collective(
            (GRADIENT_ISSUE, GRADIENT), 0, lambda t: t.gradient_issue[stage], reduced, ("data", 0, GRADIENT_BYTES)
        )
        return [
            *gradient,
            Entry(GRAD_NORM, 0, reduced, reduced),
            Entry(OPTIMIZER, 0, reduced, ended),
            Entry(LOSS, 0, ended, ended),
            Entry(STEP, 0, lambda t: t.begin[stage], ended),
        ]


def _collective(
    ops: tuple[int, int], micro: int, begin: Moments, end: Moments, call: tuple[str, int, int]
) -> list[Entry]:
    counter, nth, n_bytes = call
    return [
        Entry(ops[0], micro, begin, begin, fixed=n_bytes, counter=counter, nth=nth),
        Entry(ops[1], micro, begin, end, counter=counter, nth=nth),
    ]


def _count(entries: Sequence[Entry], counter: str) -> int:
    """Return how many sequence numbers of a group one step takes; 0 for records that bear none."""
    return len({entry.nth for entry in entries if entry.counter == counter}) if counter else 0


def _column(entries: Sequence[Entry], field: Callable[[Entry], int]) -> NDArray[np.int64]:
    return np.array([field(entry) for entry in entries], dtype=np.int64)


def ops_of(topology: Topology, rank: int) -> dict[int, Op]:
    """Return what the op ids mean in a rank's records. Ranks of one group give equal ops."""
    stage = topology.coordinates(rank)["pp"]
    layers = f"layers.{stage * LAYERS_PER_STAGE}-{(stage + 1) * LAYERS_PER_STAGE - 1}"
    receive = ("recv", "pipeline", topology.pipeline_group(rank), ACTIVATION_BYTES)
    tensor = ("allreduce", "tensor", topology.tensor_group(rank), ACTIVATION_BYTES)
    gradient = ("allreduce", "data", topology.data_group(rank), GRADIENT_BYTES)
    ops = {
        LOADER: Op(_ops.LOADER, "dataloader"),
        STEP: Op(_ops.STEP, "step"),
        FORWARD_OP: Op(_ops.FORWARD, "TransformerLayers", module=layers),
        BACKWARD_OP: Op(_ops.BACKWARD, "TransformerLayers", module=layers),
        OPTIMIZER: Op(_ops.OPTIMIZER, "AdamW"),
        LOSS: Op(_ops.SAMPLE, "loss"),
        GRAD_NORM: Op(_ops.SAMPLE, "grad_norm"),
    }
    for issue, (name, group, members, n_bytes) in (
        (RECEIVE_ISSUE, receive),
        (TENSOR_ISSUE, tensor),
        (GRADIENT_ISSUE, gradient),
    ):
        for op, kind in ((issue, _ops.ISSUE), (issue + 1, _ops.COLLECTIVE)):
            ops[op] = Op(kind, name, "", group, members, "bfloat16", size_class(n_bytes), BACKEND)
    return ops
