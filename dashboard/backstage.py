"""Everything that callbacks and API share: the stores, what is held in memory, the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from clickhouse_connect.driver.exceptions import ClickHouseError
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from analytics.ratios import peer_log_ratios
from analytics.roles import roles_of
from analytics.window import Topology
from dashboard import queries
from dashboard.compute_window import WindowView
from dashboard.pulse import Pulse
from dashboard.queries import IncidentRow, RunRow
from dashboard.run_cache import RunCache
from dashboard.telemetry_source import TelemetrySource
from flightwatch.errors import FlightwatchError

# What a store may answer instead of rows: away, locked, over its limits. Pages and API say it in one line.
STORE_ERRORS = (FlightwatchError, SQLAlchemyError, ClickHouseError)
AROUND_STEPS = 50  # shown before and after an incident
MAX_INCIDENT_STEPS = 400
MAX_VIEWS = 8  # past incidents kept in memory, 6 MB each at the most
MAX_INCIDENT_CELLS = 1_500_000  # ranks x steps fetched for one incident's picture: about 2 s of the store's time


def utc_now() -> datetime:
    """Return the time, aware."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Backstage:
    """The dashboard's own objects, made once by create_app."""

    engine: Engine
    source: TelemetrySource
    cache: RunCache
    pulse: Pulse
    now: Callable[[], datetime] = field(default=utc_now)
    _views: dict[tuple[str, int, int], WindowView] = field(default_factory=dict)

    def window(self, run: RunRow, n_steps: int) -> WindowView:
        """Return the newest `n_steps` steps of `run`."""
        return self.cache.of(run.id).window.view(last_step=run.last_step, n_steps=n_steps)

    def around(self, incident: IncidentRow) -> WindowView:
        """Return the steps around `incident`, cut at its end if it is long.

        While it is among the run's newest steps, these come from the window that the run's page shows too.
        """
        run = queries.find_run(self.engine, incident.run_id)
        topology = self.cache.topology(incident.run_id)
        depth = max(2 * AROUND_STEPS, min(MAX_INCIDENT_STEPS, MAX_INCIDENT_CELLS // max(1, len(topology.ranks))))
        first = max(0, incident.first_step - AROUND_STEPS)
        newest = run.last_step if run else incident.last_step + AROUND_STEPS
        last = min(newest, first + depth - 1)
        if incident.resolved_step is not None:
            last = min(last, incident.resolved_step + AROUND_STEPS)
        if run and newest - first < depth:
            return self.window(run, newest - first + 1).until(last)
        return self._kept(incident, topology, first, last)

    def _kept(self, incident: IncidentRow, topology: Topology, first: int, last: int) -> WindowView:
        """Return the view of steps that no longer change, fetched once."""
        key = (incident.id, first, last)
        if key not in self._views:
            while len(self._views) >= MAX_VIEWS:
                self._views.pop(next(iter(self._views)), None)
            self._views[key] = self._fetched(incident, topology, first, last)
        return self._views[key]

    def _fetched(self, incident: IncidentRow, topology: Topology, first: int, last: int) -> WindowView:
        rows = self.source.compute_seconds(incident.run_id, first_step=first, last_step=last)
        return view_of(topology, *(rows[name].to_numpy() for name in ("rank", "step", "seconds")))


def view_of(topology: Topology, rank: np.ndarray, step: np.ndarray, seconds: np.ndarray) -> WindowView:
    """Return the view of rows rank, step, seconds; rows of ranks that `topology` does not name are left out."""
    known = np.isin(rank, topology.ranks)
    steps, column = np.unique(step[known].astype(np.int64), return_inverse=True)
    table = np.full((len(topology.ranks), len(steps)), np.nan, dtype=np.float32)
    table[np.searchsorted(topology.ranks, rank[known]), column] = seconds[known]
    ratios = peer_log_ratios(table.astype(np.float64), roles_of(topology, None)).astype(np.float32)
    return WindowView(topology, steps, table, ratios)
