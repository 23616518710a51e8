"""The newest steps of one run, kept in memory and rolled forward without asking the store again."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analytics.window import Topology, Window

Scalar = TypeVar("Scalar", bound=np.generic)

# Micro-batch ids index an array. A step of more micro-batches than this is watched per step, not per micro-batch.
MICROBATCHES_KEPT = 128
SLACK = 0.25  # spare columns, so that rolling copies everything once in a quarter window and not with every step


class LiveWindow:
    """At most `steps_kept` newest steps of a run.

    Memory: ranks x steps x micro-batches x 8 bytes, times 1 + SLACK, for each phase. Rows may come in any order: a step
    that is known is completed, one in between is inserted, one too old is dropped.
    """

    def __init__(self, run: str, topology: Topology, *, steps_kept: int) -> None:
        self._run = run
        self._topology = topology
        self._kept = steps_kept
        self._capacity = steps_kept + max(1, int(steps_kept * SLACK))
        self._count = 0
        self._steps = np.zeros(self._capacity, dtype=np.int64)
        self._began = np.zeros(self._capacity, dtype=np.int64)
        self._seconds: dict[str, NDArray[np.float64]] = {}

    @property
    def newest_step(self) -> int | None:
        """Return the newest step held."""
        return int(self._steps[self._count - 1]) if self._count else None

    @property
    def oldest_step(self) -> int | None:
        """Return the oldest step handed to detectors."""
        return int(self._steps[max(0, self._count - self._kept)]) if self._count else None

    def merge(self, phases: pa.Table) -> None:
        """Take in rows of `queries.step_phases`: rank, step, micro, phase, seconds, start_ns."""
        if phases.num_rows == 0:
            return
        part = Window.from_phases(self._run, self._topology, _bounded(phases))
        known = self._steps[: self._count]
        union = np.union1d(known, part.steps)
        if len(union) > self._count:
            self._place(union)
        columns = np.searchsorted(self._steps[: self._count], part.steps)
        columns = np.minimum(columns, self._count - 1)
        is_held = self._steps[columns] == part.steps
        columns, chosen = columns[is_held], np.flatnonzero(is_held)
        for phase, cube in part.seconds.items():
            self._blend(phase, columns, cube[:, chosen, :])
        began, new = self._began[columns], part.step_unix_ns[chosen]
        self._began[columns] = np.where(began == 0, new, np.minimum(began, new))

    def follow(self, topology: Topology) -> None:
        """Stand on a changed topology; ranks that were there before keep their seconds."""
        old, self._topology = self._topology, topology
        if np.array_equal(old.ranks, topology.ranks):
            return
        stayed = np.flatnonzero(np.isin(topology.ranks, old.ranks))
        source = np.searchsorted(old.ranks, topology.ranks[stayed])
        for phase, cube in self._seconds.items():
            moved = np.full((len(topology.ranks), *cube.shape[1:]), np.nan)
            moved[stayed] = cube[source]
            self._seconds[phase] = moved

    def window(self) -> Window:
        """Return the newest steps as read-only views: valid until the next `merge` or `follow`."""
        span = slice(max(0, self._count - self._kept), self._count)
        seconds = {phase: _read_only(cube[:, span, :]) for phase, cube in self._seconds.items()}
        return Window(
            run=self._run,
            topology=self._topology,
            steps=_read_only(self._steps[span]),
            seconds=seconds,
            step_unix_ns=_read_only(self._began[span]),
        )

    def _place(self, union: NDArray[np.int64]) -> None:
        """Make the columns those of the newest of `union` (ascending, all held steps among them)."""
        held = self._steps[: self._count].copy()
        is_appending = self._count == 0 or bool((union[: self._count] == held).all())
        if is_appending and len(union) <= self._capacity:
            self._steps[self._count : len(union)] = union[self._count :]
            self._count = len(union)
            return
        target = union[-self._kept :]
        stayed = np.flatnonzero(np.isin(target, held))
        source = np.searchsorted(held, target[stayed])
        for cube in self._seconds.values():
            kept = cube[:, source, :]
            cube[:] = np.nan
            cube[:, stayed, :] = kept
        began = self._began[source]
        self._began[:] = 0
        self._began[stayed] = began
        self._count = len(target)
        self._steps[: self._count] = target

    def _blend(self, phase: str, columns: NDArray[np.int64], cube: NDArray[np.float64]) -> None:
        mine = self._seconds.get(phase)
        shape = (len(self._topology.ranks), self._capacity, cube.shape[2])
        if mine is None or mine.shape[2] < shape[2]:
            wider = np.full(shape, np.nan)
            if mine is not None:
                wider[:, :, : mine.shape[2]] = mine
            self._seconds[phase] = mine = wider
        depth = cube.shape[2]
        mine[:, columns, :depth] = np.where(np.isnan(cube), mine[:, columns, :depth], cube)


def _bounded(phases: pa.Table) -> pa.Table:
    if int(pc.max(phases["micro"]).as_py() or 0) < MICROBATCHES_KEPT:
        return phases
    summed = phases.group_by(["rank", "step", "phase"]).aggregate([("seconds", "sum"), ("start_ns", "min")])
    return pa.table(
        {
            "rank": summed["rank"],
            "step": summed["step"],
            "micro": pa.array(np.zeros(summed.num_rows, dtype=np.int64)),
            "phase": summed["phase"],
            "seconds": summed["seconds_sum"],
            "start_ns": summed["start_ns_min"],
        }
    )


def _read_only(view: NDArray[Scalar]) -> NDArray[Scalar]:
    view = view.view()
    view.flags.writeable = False
    return view
