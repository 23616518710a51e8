"""What is held in memory of the runs that somebody looks at."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from sqlalchemy import Engine

from analytics.window import Topology
from dashboard import queries
from dashboard.compute_window import ComputeWindow
from dashboard.host_panels import HostPanels
from dashboard.step_series import RunSeries
from dashboard.telemetry_source import TelemetrySource

MAX_RUNS = 6  # the least recently looked at goes; 6 runs of 10,000 ranks are half a gigabyte


@dataclass(frozen=True, slots=True)
class RunMemory:
    """One run's windows and series."""

    window: ComputeWindow
    series: RunSeries
    hosts: HostPanels


class RunCache:
    """What is known of each run by its id, shared by all viewers."""

    def __init__(self, engine: Engine, source: TelemetrySource, *, max_runs: int = MAX_RUNS) -> None:
        self._engine, self._source, self._max_runs = engine, source, max_runs
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, RunMemory] = OrderedDict()
        self._topologies: dict[str, tuple[object, Topology]] = {}

    def topology(self, run_id: str) -> Topology:
        """Return who is in the run, read anew only when a rank has started since."""
        version = queries.topology_version(self._engine, run_id)
        with self._lock:
            held = self._topologies.get(run_id)
        if held is not None and held[0] == version:
            return held[1]
        topology = queries.topology(self._engine, run_id)
        with self._lock:
            self._topologies[run_id] = version, topology
            while len(self._topologies) > self._max_runs:
                self._topologies.pop(next(iter(self._topologies)))
        return topology

    def of(self, run_id: str) -> RunMemory:
        """Return the run's memory, made at the first call."""
        with self._lock:
            if run_id not in self._runs:
                self._runs[run_id] = RunMemory(
                    ComputeWindow(run_id, self._engine, self._source),
                    RunSeries(run_id, self._source),
                    HostPanels(self._source),
                )
            self._runs.move_to_end(run_id)
            while len(self._runs) > self._max_runs:
                self._runs.popitem(last=False)
            return self._runs[run_id]
