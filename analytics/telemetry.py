"""What the engine asks of the telemetry store."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from collector.store.telemetry import queries
from collector.store.telemetry.client import TelemetryClient

# `ops` is sorted by (run, step, op): with a lower bound on the step this reads a window, not the run's whole history.
RANK_STEPS = """
    SELECT rank, max(step) AS last_step
    FROM ops
    WHERE run = {run:String} AND op IN (SELECT op FROM op_names WHERE run = {run:String} AND kind = 'step')
        AND step >= {first_step:UInt32} AND start_ns >= {since_ns:Int64}
    GROUP BY rank
"""


@dataclass(frozen=True, slots=True)
class StoredTelemetry:
    """The questions of the engine, answered by ClickHouse or the embedded store behind `client`."""

    client: TelemetryClient

    def rank_steps(self, run: str, *, first_step: int, since_ns: int) -> pa.Table:
        """Return rank and last_step of the ranks that ended a step from `first_step` on, begun since `since_ns`."""
        return self.client.query(RANK_STEPS, {"run": run, "first_step": first_step, "since_ns": since_ns})

    def step_phases(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        """Return rank, step, micro, phase, seconds, start_ns, n."""
        return queries.step_phases(self.client, run, first_step=first_step, last_step=last_step)
