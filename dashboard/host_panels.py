"""Host telemetry of a run's nodes as panels on a common clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from dashboard.figures.host_metrics import MetricPanel
from dashboard.telemetry_source import TelemetrySource

SPAN_SECONDS = 900
POINTS = 60
REFRESH_SECONDS = 10.0  # hosts are sampled every few seconds; a page need not redraw faster


class HostPanels:
    """The newest SPAN_SECONDS of every node's metrics, fetched anew at most every REFRESH_SECONDS."""

    def __init__(self, source: TelemetrySource, *, now: Callable[[], float] = time.monotonic) -> None:
        self._source, self._now = source, now
        self._lock = threading.Lock()
        self._looked_at = -np.inf
        self._panels: list[MetricPanel] = []

    def panels(self, nodes: Sequence[str], *, until_ns: int) -> list[MetricPanel]:
        """Return one panel per metric, in the order of their names; the highest of a node's devices speaks for it."""
        with self._lock:
            if self._now() - self._looked_at >= REFRESH_SECONDS:
                since_ns = until_ns - SPAN_SECONDS * 1_000_000_000
                rows = self._source.metric_series(nodes=nodes, since_ns=since_ns, until_ns=until_ns, points=POINTS)
                self._panels = to_panels(rows)
                self._looked_at = self._now()
            return self._panels


def to_panels(rows: pa.Table) -> list[MetricPanel]:
    """Return panels of rows node, device, metric, time_ns, value: the worst (highest) device speaks for its node."""
    if not rows.num_rows:
        return []
    metrics, metric = np.unique(rows["metric"].to_numpy().astype(str), return_inverse=True)
    node_names = rows["node"].to_numpy().astype(str)
    times = rows["time_ns"].to_numpy().astype(np.int64)
    values = rows["value"].to_numpy().astype(np.float64)
    panels = []
    for index, name in enumerate(metrics):
        own = metric == index
        nodes, row = np.unique(node_names[own], return_inverse=True)
        clock, column = np.unique(times[own], return_inverse=True)
        grid = np.full((len(nodes), len(clock)), -np.inf)
        np.maximum.at(grid, (row, column), values[own])
        grid[np.isneginf(grid)] = np.nan
        panels.append(MetricPanel(str(name), tuple(nodes.tolist()), clock, grid))
    return panels
