"""A trace as dense arrays: every op of the step's graph by data-parallel rank and step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collector.ingest.straggler_trace import OPTYPES, StragglerTrace

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OpGrid:
    """One row per op of the step's graph, which all data-parallel ranks and steps share.

    `optype`, `seq`, `stage`, `chunk` (n_ops,); `start`, `seconds` (n_ops, n_dp, n_steps), NaN = not traced;
    `ranks` (n_dp, n_stages) global ranks, -1 = not traced; `steps` (n_steps,).
    """

    optype: NDArray[np.int64]
    seq: NDArray[np.int64]
    stage: NDArray[np.int64]
    chunk: NDArray[np.int64]
    start: Floats
    seconds: Floats
    ranks: NDArray[np.int64]
    steps: NDArray[np.int64]

    @property
    def n_stages(self) -> int:
        """Return the number of pipeline stages."""
        return int(self.ranks.shape[1])


def grid_of(trace: StragglerTrace) -> OpGrid | None:
    """Return the grid, or None where two traced ranks share one place (dp, stage) or an op repeats in a step."""
    dps, dp = np.unique(trace.dp, return_inverse=True)
    stages, stage = np.unique(trace.stage, return_inverse=True)
    steps, step = np.unique(trace.step, return_inverse=True)
    ranks = np.full((len(dps), len(stages)), -1, dtype=np.int64)
    ranks[dp, stage] = trace.rank
    if (ranks[dp, stage] != trace.rank).any():
        return None
    key = (trace.optype * (int(trace.seq.max()) + 1) + trace.seq) * len(stages) + stage
    ops, first, op = np.unique(key, return_index=True, return_inverse=True)
    cell = (op * len(dps) + dp) * len(steps) + step
    if len(np.unique(cell)) != len(cell):
        return None
    shape = (len(ops), len(dps), len(steps))
    start, seconds = np.full(shape, np.nan), np.full(shape, np.nan)
    start.flat[cell] = trace.start_seconds
    seconds.flat[cell] = trace.duration_seconds
    return OpGrid(
        optype=trace.optype[first],
        seq=trace.seq[first],
        stage=stage[first].astype(np.int64),
        chunk=trace.chunk[first],
        start=start,
        seconds=seconds,
        ranks=ranks,
        steps=steps,
    )


def code(optype: str) -> int:
    """Return the number by which an op kind is known in the grid."""
    return OPTYPES.index(optype)
