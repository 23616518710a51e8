"""What the sensors of the simulated nodes read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fleet.faults import Fault
from fleet.topology import Topology

# Own choice: an air-cooled node under load, and a slow one that throttles because it is hotter.
TEMPERATURE_CELSIUS = 61.0
TEMPERATURE_SPREAD_CELSIUS = 1.5
HOTTER_CELSIUS_PER_FACTOR = 25.0  # x1.4 ends up 10 degrees hotter
THERMAL_SECONDS = 30.0  # time constant of heating and cooling
MEMORY_BYTES = 1 << 40
MEMORY_USED_RATIO = 0.35
CPU_BUSY_RATIO = 0.22


class Hosts:
    """Sensors of all nodes, read together. One array (n_nodes,) per metric."""

    def __init__(self, topology: Topology, seed: int) -> None:
        self._topology = topology
        self._rng = np.random.default_rng([seed, 1])
        n_nodes = topology.n_nodes
        self._calm = TEMPERATURE_CELSIUS + TEMPERATURE_SPREAD_CELSIUS * self._rng.standard_normal(n_nodes)
        self._used = MEMORY_USED_RATIO * (1.0 + 0.02 * self._rng.standard_normal(n_nodes))
        self._excess = np.zeros(n_nodes)

    def read(self, elapsed_seconds: float, faults: Sequence[Fault]) -> Mapping[str, NDArray[np.float64]]:
        """Return the readings by metric, `elapsed_seconds` after the last ones, with these faults acting since then."""
        n_nodes = self._topology.n_nodes
        target = np.zeros(n_nodes)
        for fault in faults:
            for node in {rank // self._topology.ranks_per_node for rank in fault.ranks}:
                target[node] += HOTTER_CELSIUS_PER_FACTOR * (fault.factor - 1.0)
        self._excess += (target - self._excess) * (1.0 - np.exp(-elapsed_seconds / THERMAL_SECONDS))
        busy = CPU_BUSY_RATIO + 0.02 * self._rng.standard_normal(n_nodes)
        return {
            "cpu_busy_ratio": np.clip(busy, 0.0, 1.0),
            "memory_available_bytes": np.rint(MEMORY_BYTES * (1.0 - self._used)),
            "temperature_celsius": np.round(self._calm + self._excess + 0.3 * self._rng.standard_normal(n_nodes), 1),
        }
