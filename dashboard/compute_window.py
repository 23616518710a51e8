"""The newest steps of one run in memory: each update fetches only what is new, and shares it between all who look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine

from analytics.ratios import peer_log_ratios
from analytics.roles import roles_of
from analytics.window import Topology, Window
from dashboard import queries
from dashboard.telemetry_source import TelemetrySource

CAPACITY_STEPS = 1000
REFRESH_SECONDS = 0.9  # viewers that come within it share one look at the stores
# Rows per question: 2 M rows of step_phases are about 100 MB of Arrow.
ROWS_PER_FETCH = 2_000_000
ROWS_PER_STEP_AND_RANK = 6
# Steps in which some rank is still missing are asked for again, this many back at most and within this many rows.
LATE_STEPS = 60
LATE_ROWS = 150_000
# Roles that must be inferred are looked at again each time the window has grown by this many steps.
ROLES_AGAIN_STEPS = 50


@dataclass(frozen=True, slots=True)
class WindowView:
    """What a figure is made of.

    `steps` (m,) ascending; `seconds` and `log_ratios` (n, m) float32, NaN = no finished step.
    """

    topology: Topology
    steps: NDArray[np.int64]
    seconds: NDArray[np.float32]
    log_ratios: NDArray[np.float32]

    def newest(self, n_steps: int) -> WindowView:
        """Return the view of the newest `n_steps` alone."""
        return WindowView(
            self.topology, self.steps[-n_steps:], self.seconds[:, -n_steps:], self.log_ratios[:, -n_steps:]
        )

    def until(self, last_step: int) -> WindowView:
        """Return the view without the steps after `last_step`."""
        end = int(np.searchsorted(self.steps, last_step, side="right"))
        return WindowView(self.topology, self.steps[:end], self.seconds[:, :end], self.log_ratios[:, :end])

    @property
    def reporting(self) -> int:
        """Return how many ranks finished a step of this view."""
        return int(np.isfinite(self.seconds).any(axis=1).sum())


class ComputeWindow:
    """Compute seconds per rank and step of one run, and their log ratios to peers, of the newest CAPACITY_STEPS steps.

    O(n) memory times CAPACITY_STEPS (80 MB at 10,000 ranks). Any number of threads may ask; one at a time fetches.
    """

    def __init__(
        self,
        run: str,
        engine: Engine,
        source: TelemetrySource,
        *,
        capacity: int = CAPACITY_STEPS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._engine, self._source = run, engine, source
        self._capacity, self._now = capacity, now
        self._lock = threading.Lock()
        self._version: object = None
        self._looked_at = -np.inf
        self._asked_from = 0
        self._roles_steps = -1
        self._roles = np.zeros(0, dtype=np.int64)
        self._view = _empty(Topology(np.zeros(0, dtype=np.int64), ()))

    def view(self, *, last_step: int, n_steps: int = CAPACITY_STEPS) -> WindowView:
        """Return the newest `n_steps` steps up to the run's `last_step`."""
        with self._lock:
            if self._now() - self._looked_at >= REFRESH_SECONDS:
                self._refresh(last_step, n_steps)
                self._looked_at = self._now()
            elif self._wanted(last_step, n_steps) < self._asked_from:
                self._refresh(last_step, n_steps)
            return self._view.newest(n_steps)

    def _refresh(self, last_step: int, n_steps: int) -> None:
        version = queries.topology_version(self._engine, self._run)
        if version != self._version:
            self._view = _empty(queries.topology(self._engine, self._run))
            self._version, self._roles_steps = version, -1
        if last_step < 0 or not len(self._view.topology.ranks):
            return
        wanted = self._wanted(last_step, n_steps)
        if not len(self._view.steps):
            self._fetch(wanted, last_step)
            self._asked_from = wanted
            return
        if wanted < self._asked_from:
            self._fetch(wanted, self._asked_from - 1)
            self._asked_from = wanted
        self._fetch(max(wanted, self._first_missing()), last_step)

    def _wanted(self, last_step: int, n_steps: int) -> int:
        return max(0, last_step - min(n_steps, self._capacity) + 1)

    def _first_missing(self) -> int:
        """Return the step from which on to ask: the first recent one that some rank has not finished, else the next."""
        n = len(self._view.topology.ranks)
        back = min(LATE_STEPS, max(3, LATE_ROWS // (n * ROWS_PER_STEP_AND_RANK)), len(self._view.steps))
        whole = np.isfinite(self._view.seconds[:, -back:]).all(axis=0)
        if whole.all():
            return int(self._view.steps[-1]) + 1
        return int(self._view.steps[-back:][~whole][0])

    def _fetch(self, first: int, last: int) -> None:
        n = len(self._view.topology.ranks)
        stride = max(1, ROWS_PER_FETCH // (n * ROWS_PER_STEP_AND_RANK))
        for start in range(first, last + 1, stride):
            rows = self._source.compute_seconds(self._run, first_step=start, last_step=min(last, start + stride - 1))
            if rows.num_rows:
                self._merge(*(rows[name].to_numpy() for name in ("rank", "step", "seconds")))

    def _merge(self, rank: NDArray[np.int64], step: NDArray[np.int64], seconds: NDArray[np.float64]) -> None:
        topology = self._view.topology
        known = np.isin(rank, topology.ranks)
        steps, column = np.unique(step[known].astype(np.int64), return_inverse=True)
        fresh = np.full((len(topology.ranks), len(steps)), np.nan, dtype=np.float32)
        fresh[np.searchsorted(topology.ranks, rank[known]), column] = seconds[known]
        old = ~np.isin(self._view.steps, steps)
        all_steps = np.concatenate([self._view.steps[old], steps])
        order = np.argsort(all_steps, kind="stable")[-self._capacity :]
        together = np.concatenate([self._view.seconds[:, old], fresh], axis=1)[:, order]
        self._view = WindowView(topology, all_steps[order], together, self._ratios(fresh, old, order, together))

    def _ratios(
        self,
        fresh: NDArray[np.float32],
        old: NDArray[np.bool_],
        order: NDArray[np.int64],
        together: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        roles = self._current_roles(together)
        if np.array_equal(roles, self._roles):
            new = peer_log_ratios(fresh.astype(np.float64), roles).astype(np.float32)
            return np.concatenate([self._view.log_ratios[:, old], new], axis=1)[:, order]
        self._roles = roles
        return peer_log_ratios(together.astype(np.float64), roles).astype(np.float32)

    def _current_roles(self, together: NDArray[np.float32]) -> NDArray[np.int64]:
        n_steps = together.shape[1]
        if self._roles_steps >= 0 and (n_steps < self._roles_steps + ROLES_AGAIN_STEPS):
            return self._roles
        self._roles_steps = n_steps
        cube = {"forward": together[:, :, None].astype(np.float64)}
        no_times = np.zeros(n_steps, dtype=np.int64)
        topology = self._view.topology
        return roles_of(topology, Window(self._run, topology, np.arange(n_steps), cube, no_times))


def _empty(topology: Topology) -> WindowView:
    nothing = np.zeros((len(topology.ranks), 0), dtype=np.float32)
    return WindowView(topology, np.zeros(0, dtype=np.int64), nothing, nothing)
