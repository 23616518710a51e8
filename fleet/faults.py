"""What goes wrong in a simulated job, and when: the truth that detectors are held to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleet.durations import Seconds
from fleet.topology import Topology
from flightwatch.errors import FlightwatchError

COMPUTE_SLOW = "compute_slow"
KINDS = (COMPUTE_SLOW,)


@dataclass(frozen=True, slots=True)
class Fault:
    """Some ranks' compute takes `factor` times as long from `first_step` to `last_step`, both included."""

    kind: str
    ranks: tuple[int, ...]
    factor: float
    first_step: int
    last_step: int
    node: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise FlightwatchError(f"unknown fault {self.kind!r}; known: {', '.join(KINDS)}")
        if not 1.0 <= self.factor <= 1000.0:
            raise FlightwatchError(f"a slow factor is a number from 1 to 1000, not {self.factor}")
        if not 0 <= self.first_step <= self.last_step:
            raise FlightwatchError(f"a fault cannot last from step {self.first_step} to step {self.last_step}")

    def is_active(self, step: int) -> bool:
        """Return whether the fault acts in this step."""
        return self.first_step <= step <= self.last_step

    def to_json(self) -> dict[str, Any]:
        """Return the fault as plain JSON types."""
        return {
            "kind": self.kind,
            "node": self.node,
            "ranks": list(self.ranks),
            "factor": self.factor,
            "first_step": self.first_step,
            "last_step": self.last_step,
        }


def slow_node(topology: Topology, node: str, *, factor: float, first_step: int, last_step: int) -> Fault:
    """Return the fault that slows every rank of a node."""
    return Fault(COMPUTE_SLOW, topology.ranks_of(node), factor, first_step, last_step, node)


class FaultSchedule:
    """Faults by step: those given one by one, and an endless loop of slow nodes where one is wanted."""

    def __init__(self, faults: Sequence[Fault] = (), loop: Iterator[Fault] | None = None) -> None:
        self._faults = list(faults)
        self._loop = loop
        self._waiting = next(loop, None) if loop is not None else None

    def active(self, step: int) -> list[Fault]:
        """Return the faults that act in a step. Steps are asked for in ascending order."""
        while self._waiting is not None and self._waiting.first_step <= step:
            self._faults.append(self._waiting)
            self._waiting = next(self._loop, None) if self._loop is not None else None
        return [fault for fault in self._faults if fault.is_active(step)]

    @property
    def met(self) -> tuple[Fault, ...]:
        """Return the faults given, and those of the loop that have begun."""
        return tuple(self._faults)


def slow_node_loop(
    topology: Topology, *, healthy_steps: int, slow_steps: int, rest_steps: int, factor: float, seed: int
) -> Iterator[Fault]:
    """Yield slow nodes for ever: the first after `healthy_steps`, for `slow_steps` each, `rest_steps` apart."""
    rng = np.random.default_rng(seed)
    first_step = healthy_steps
    while True:
        for node in rng.permutation(topology.n_nodes):
            last_step = first_step + slow_steps - 1
            name = topology.node_name(int(node))
            yield slow_node(topology, name, factor=factor, first_step=first_step, last_step=last_step)
            first_step = last_step + 1 + rest_steps


def slowdown_of(topology: Topology, faults: Sequence[Fault]) -> Seconds | None:
    """Return the factor on each rank's compute (pp, dp, tp), None when no fault acts."""
    if not faults:
        return None
    factors = np.ones(topology.n_ranks)
    for fault in faults:
        factors[list(fault.ranks)] *= fault.factor
    return factors.reshape(topology.shape)
