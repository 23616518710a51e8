"""What figures ask of the telemetry store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa


class TelemetrySource(Protocol):
    """Rows of one run. Steps are inclusive bounds; all tables are deduplicated."""

    def compute_seconds(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        """Return rank, step, seconds (forward and backward summed) of every step that the rank has finished."""

    def step_seconds(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        """Return step, seconds_median, seconds_max, seconds_p05, seconds_p95, n_ranks."""

    def samples(self, run: str, *, names: Sequence[str], first_step: int, last_step: int) -> pa.Table:
        """Return step, name, value_median, value_min, value_max, n_ranks."""

    def metric_series(self, *, nodes: Sequence[str], since_ns: int, until_ns: int, points: int) -> pa.Table:
        """Return node, device, metric, time_ns, value in `points` buckets, every metric that the nodes sent."""

    def ping(self) -> None:
        """Return if the store answers.

        Raises:
            StoreUnreachableError: it does not.
        """
