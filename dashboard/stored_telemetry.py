"""The telemetry store as figures see it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from collector.store.telemetry import queries
from collector.store.telemetry.client import TelemetryClient


class StoredTelemetry:
    """The telemetry store by its client; a TelemetrySource."""

    def __init__(self, client: TelemetryClient) -> None:
        self._client = client

    def compute_seconds(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        """Return rank, step, seconds of finished steps."""
        return queries.compute_seconds(self._client, run, first_step=first_step, last_step=last_step)

    def step_seconds(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        """Return step time quantiles over ranks."""
        return queries.step_seconds(self._client, run, first_step=first_step, last_step=last_step)

    def samples(self, run: str, *, names: Sequence[str], first_step: int, last_step: int) -> pa.Table:
        """Return what training reported."""
        return queries.samples(self._client, run, names=names, first_step=first_step, last_step=last_step)

    def metric_series(self, *, nodes: Sequence[str], since_ns: int, until_ns: int, points: int) -> pa.Table:
        """Return host telemetry, every metric that the nodes sent."""
        names = queries.metric_names(self._client, nodes=nodes, since_ns=since_ns, until_ns=until_ns)
        return queries.metric_series(
            self._client, nodes=nodes, metrics=names, since_ns=since_ns, until_ns=until_ns, points=points
        )

    def ping(self) -> None:
        """Return if the store answers."""
        self._client.ping()
