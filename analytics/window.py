"""What every detector on timings is given: a span of steps of all ranks, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PHASES = ("forward", "backward", "optimizer", "loader", "collective", "step")
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Topology:
    """Who the ranks are: `ranks` (n,) ascending; `nodes` (n,) names; `coordinates` "dp", ... each (n,), -1 unknown."""

    ranks: NDArray[np.int64]
    nodes: tuple[str, ...]
    coordinates: dict[str, NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """Seconds per rank, step and micro-batch.

    `steps` (m,) ascending; `seconds[phase]` (n, m, k) float64, k micro-batches (k = 1 where untold); NaN = not seen.
    `step_unix_ns` (m,): when each step began on the first rank that began it; 0 unknown.
    """

    run: str
    topology: Topology
    steps: NDArray[np.int64]
    seconds: dict[str, NDArray[np.float64]]
    step_unix_ns: NDArray[np.int64]

    def per_step(self, *phases: str) -> NDArray[np.float64]:
        """Return seconds (n, m) summed over `phases` and micro-batches; NaN where a rank showed none in a step."""
        parts = [self.seconds[phase] for phase in phases if phase in self.seconds]
        if not parts:
            return np.full((len(self.topology.ranks), len(self.steps)), np.nan)
        total = np.zeros((len(self.topology.ranks), len(self.steps)))
        seen = np.zeros(total.shape, dtype=bool)
        for part in parts:
            total += np.nansum(part, axis=2)
            seen |= ~np.isnan(part).all(axis=2)
        return np.where(seen, total, np.nan)

    @classmethod
    def from_phases(cls, run: str, topology: Topology, phases: pa.Table) -> Window:
        """Return the window that `collector.store.telemetry.queries.step_phases` rows describe.

        Args:
            run: the run's id.
            topology: rows of ranks that it does not name are left out.
            phases: columns rank, step, micro (integers), phase (string), seconds (float64), start_ns (int64).
        """
        rank = phases["rank"].to_numpy().astype(np.int64)
        known = np.isin(rank, topology.ranks)
        step = phases["step"].to_numpy().astype(np.int64)[known]
        micro = phases["micro"].to_numpy().astype(np.int64)[known]
        seconds = phases["seconds"].to_numpy().astype(np.float64)[known]
        start_ns = phases["start_ns"].to_numpy().astype(np.int64)[known]
        encoded = phases["phase"].combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        code = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)[known]
        names = encoded.dictionary.to_pylist()

        steps, column = np.unique(step, return_inverse=True)
        row = np.searchsorted(topology.ranks, rank[known])
        began = np.full(len(steps), np.iinfo(np.int64).max)
        np.minimum.at(began, column, start_ns)
        table: dict[str, NDArray[np.float64]] = {}
        for index, name in enumerate(names):
            chosen = code == index
            if not chosen.any():
                continue
            depth = int(micro[chosen].max()) + 1
            cube = np.full((len(topology.ranks), len(steps), depth), np.nan)
            cube[row[chosen], column[chosen], micro[chosen]] = seconds[chosen]
            table[name] = cube
        return cls(run=run, topology=topology, steps=steps, seconds=table, step_unix_ns=began)
