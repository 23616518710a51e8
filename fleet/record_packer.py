"""Turns the moments of a step into ring records, as each rank's agent would have written them. No object per record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleet.durations import Seconds
from fleet.stage_program import GRAD_NORM, LOSS, StageProgram
from fleet.timeline import StepTimes
from flightwatch._layout import CAPACITY, RECORD_DTYPE

Records = NDArray[np.void]
NS = 1e9


@dataclass(frozen=True, slots=True)
class Samples:
    """The numbers that every rank logs in a step, equal in all of them after the reduction."""

    loss: float
    grad_norm: float


class RecordPacker:
    """Packs the records of one stage's ranks, step by step; all ranks of a stage write equally many."""

    def __init__(self, program: StageProgram, origin_ns: int) -> None:
        self._program = program
        self._origin_ns = origin_ns
        self._fixed_rows = np.array([i for i, e in enumerate(program.entries) if e.fixed is not None], dtype=np.int64)
        self._fixed_values = np.array([e.fixed for e in program.entries if e.fixed is not None], dtype=np.int64)
        self.records_written = 0

    def pack(self, step: int, times: StepTimes, samples: Samples) -> Records:
        """Return the step's records (n_ranks, n_records) in RECORD_DTYPE, each rank's in the order written."""
        program = self._program
        start_ns = self._nanoseconds(times, "begin")
        value = self._nanoseconds(times, "end") - start_ns
        value[:, self._fixed_rows] = self._fixed_values
        value[:, program.row_of(LOSS)] = _bits(samples.loss)
        value[:, program.row_of(GRAD_NORM)] = _bits(samples.grad_norm)
        numbers = np.arange(self.records_written, self.records_written + len(program))
        laps = (numbers // CAPACITY + 1) & 0xFF
        records = np.empty(start_ns.shape, dtype=RECORD_DTYPE)
        records["lap_op"] = (laps | program.op << 8).astype(np.uint32)
        records["step"] = step
        records["start_ns"] = start_ns
        records["value"] = value
        records["seq"] = (program.nth + program.per_step * step).astype(np.uint32)
        records["aux_lap"] = (program.micro | laps << 24).astype(np.uint32)
        self.records_written += len(program)
        return records

    def _nanoseconds(self, times: StepTimes, end: str) -> NDArray[np.int64]:
        stage_shape = times.begin.shape[1:]
        seconds = np.empty((*stage_shape, len(self._program)))
        for row, entry in enumerate(self._program.entries):
            moment: Seconds = getattr(entry, end)(times)
            seconds[..., row] = moment
        flat = seconds.reshape(-1, len(self._program))
        return np.rint(flat * NS).astype(np.int64) + self._origin_ns


def _bits(number: float) -> int:
    return int(np.float64(number).view(np.int64))
