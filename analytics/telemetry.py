"""What the engine asks of the telemetry store."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from collector.store.telemetry import queries
from collector.store.telemetry.client import TelemetryClient


@dataclass(frozen=True, slots=True)
class StoredTelemetry:
    """The questions of the engine, answered by ClickHouse or the embedded store behind `client`."""

    client: TelemetryClient

    def rank_steps(self, run: str, *, first_step: int, since_ns: int) -> pa.Table:
        """Return rank and last_step of the ranks that ended a step from `first_step` on, begun since `since_ns`."""
        return queries.newest_steps(self.client, run, first_step=first_step, since_ns=since_ns)

    def step_phases(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        """Return rank, step, micro, phase, seconds, start_ns, n."""
        return queries.step_phases(self.client, run, first_step=first_step, last_step=last_step)
