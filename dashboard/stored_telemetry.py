"""The telemetry store as figures see it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from collector.store.telemetry import queries
from collector.store.telemetry.client import TelemetryClient

# One row per rank and step, where `queries.step_phases` gives one per phase and micro-batch: at 10,000 ranks x 300
# steps that is 3 M rows instead of 18 M or more. A step without its step record is still under way and would look
# fast, so it is left out.
# A step that a rank did again after a restart is given as its newest epoch did it.
COMPUTE_SECONDS = """
    SELECT rank, step, argMax(own, first_ns) AS seconds
    FROM (
        SELECT rank, epoch, step, min(start_ns) AS first_ns, countIf(op IN (
                SELECT op FROM op_names WHERE run = {run:String} AND kind = 'step'
            )) AS ended,
            sumIf(value, op NOT IN (
                SELECT op FROM op_names WHERE run = {run:String} AND kind = 'step'
            )) / 1e9 AS own
        FROM ops FINAL
        WHERE run = {run:String} AND step BETWEEN {first_step:UInt32} AND {last_step:UInt32} AND op IN (
            SELECT op FROM op_names WHERE run = {run:String} AND kind IN ('forward', 'backward', 'step')
        )
        GROUP BY rank, epoch, step
    )
    WHERE ended > 0 AND own > 0
    GROUP BY rank, step
"""
METRIC_NAMES = """
    SELECT DISTINCT metric FROM metrics
    WHERE node IN {nodes:Array(String)} AND time_ns >= {since:Int64} AND time_ns < {until:Int64}
    ORDER BY metric
"""


class StoredTelemetry:
    """The telemetry store by its client; a TelemetrySource."""

    def __init__(self, client: TelemetryClient) -> None:
        self._client = client

    def compute_seconds(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        """Return rank, step, seconds of finished steps."""
        return self._client.query(COMPUTE_SECONDS, {"run": run, "first_step": first_step, "last_step": last_step})

    def step_seconds(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        """Return step time quantiles over ranks."""
        return queries.step_seconds(self._client, run, first_step=first_step, last_step=last_step)

    def samples(self, run: str, *, names: Sequence[str], first_step: int, last_step: int) -> pa.Table:
        """Return what training reported."""
        return queries.samples(self._client, run, names=names, first_step=first_step, last_step=last_step)

    def metric_series(self, *, nodes: Sequence[str], since_ns: int, until_ns: int, points: int) -> pa.Table:
        """Return host telemetry, every metric that the nodes sent."""
        span = {"nodes": list(nodes), "since": since_ns, "until": until_ns}
        names = self._client.query(METRIC_NAMES, span)["metric"].to_pylist()
        return queries.metric_series(
            self._client, nodes=nodes, metrics=names, since_ns=since_ns, until_ns=until_ns, points=points
        )

    def ping(self) -> None:
        """Return if the store answers."""
        self._client.ping()
