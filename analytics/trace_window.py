"""A trace as the window that detectors are given."""

from __future__ import annotations

import numpy as np

from analytics.own_work import COMPUTE
from analytics.window import Topology, Window
from collector.ingest.straggler_trace import BACKWARD, FORWARD, OPTYPES, StragglerTrace

PHASE_OF = {FORWARD: "forward", BACKWARD: "backward", "optimizer": "optimizer"}
UNTIMED = ("gc",)  # a marker in these traces: its duration is 0


def window_of(trace: StragglerTrace) -> Window:
    """Return seconds per rank, step and micro-batch; communication is summed into "collective", waits included."""
    ranks, first, row = np.unique(trace.rank, return_index=True, return_inverse=True)
    steps, column = np.unique(trace.step, return_inverse=True)
    topology = Topology(
        ranks=ranks,
        nodes=("",) * len(ranks),
        coordinates={"dp": trace.dp[first].copy(), "pp": trace.stage[first].copy()},
    )
    positions = _micro(trace)
    seconds = {}
    for phase in ("forward", "backward", "optimizer", "collective"):
        wanted = np.isin(trace.optype, [OPTYPES.index(name) for name in OPTYPES if _phase(name) == phase])
        if not wanted.any():
            continue
        micro = positions[wanted] if phase in COMPUTE else np.zeros(int(wanted.sum()), dtype=np.int64)
        cube = np.full((len(ranks), len(steps), int(micro.max()) + 1), np.nan)
        where = (row[wanted], column[wanted], micro)
        cube[where] = 0.0
        np.add.at(cube, where, trace.duration_seconds[wanted])
        seconds[phase] = cube
    end = np.full((len(ranks), len(steps)), -np.inf)
    np.maximum.at(end, (row, column), trace.start_seconds + trace.duration_seconds)
    seconds["step"] = np.where(np.isfinite(end), end, np.nan)[:, :, None]
    return Window(trace.name, topology, steps, seconds, np.zeros(len(steps), dtype=np.int64))


def _phase(optype: str) -> str | None:
    return None if optype in UNTIMED else PHASE_OF.get(optype, "collective")


def _micro(trace: StragglerTrace) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the micro-batch of each compute row, numbered from 0; of several chunks per rank each has its own.

    Ids need not be dense: they may count over the whole job.
    """
    micro = np.where(trace.micro >= 0, trace.micro, trace.seq)
    compute = np.isin(trace.optype, [OPTYPES.index(FORWARD), OPTYPES.index(BACKWARD)])
    pairs = np.stack([trace.chunk, micro], axis=1)[compute]
    positions = np.zeros(len(micro), dtype=np.int64)
    positions[compute] = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
    return positions
