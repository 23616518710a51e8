from __future__ import annotations

import time

import numpy as np
import pytest

from collector.store.telemetry.client import TelemetryClient, connect
from dashboard.stored_telemetry import StoredTelemetry
from dashboard_rows import FORWARD, insert_host_metrics, insert_names, insert_records, insert_steps
from dashboard_scene import SimulatedTelemetry, node_name

BEGUN_NS = time.time_ns() - 3600 * 1_000_000_000


@pytest.fixture
def client(store_url: str) -> TelemetryClient:
    return connect(store_url)


def test_compute_equals_what_ranks_did_and_leaves_out_the_step_under_way(client: TelemetryClient) -> None:
    telemetry = SimulatedTelemetry(n_ranks=16, slow_node=1, slow_from=2)
    insert_names(client, "e-compute")
    insert_steps(client, telemetry, "e-compute", first=0, last=3, begun_ns=BEGUN_NS)
    under_way = np.full(16, 1000, dtype=np.int64)
    insert_records(client, "e-compute", FORWARD, np.full(16, 4), np.arange(16), under_way, 0, BEGUN_NS)

    rows = StoredTelemetry(client).compute_seconds("e-compute", first_step=1, last_step=9).to_pylist()

    assert {row["step"] for row in rows} == {1, 2, 3}
    assert len(rows) == 48
    for row in rows:
        assert row["seconds"] == pytest.approx(telemetry.seconds(row["step"])[row["rank"]], abs=1e-6)


def test_what_arrived_twice_counts_once(client: TelemetryClient) -> None:
    telemetry = SimulatedTelemetry(n_ranks=8)
    insert_names(client, "e-twice")
    for _ in range(2):
        insert_steps(client, telemetry, "e-twice", first=0, last=0, begun_ns=BEGUN_NS)

    rows = StoredTelemetry(client).compute_seconds("e-twice", first_step=0, last_step=0)

    np.testing.assert_allclose(np.sort(rows["seconds"].to_numpy()), np.sort(telemetry.seconds(0)), atol=1e-6)


def test_a_step_done_again_after_a_restart_is_the_newer_one(client: TelemetryClient) -> None:
    slow, fast = SimulatedTelemetry(n_ranks=8, slow_node=0, slow_from=0), SimulatedTelemetry(n_ranks=8, slow_node=5)
    insert_names(client, "e-again")
    insert_steps(client, slow, "e-again", first=0, last=0, begun_ns=BEGUN_NS)
    insert_steps(client, fast, "e-again", first=0, last=0, begun_ns=BEGUN_NS + 60 * 1_000_000_000, life=1)

    rows = StoredTelemetry(client).compute_seconds("e-again", first_step=0, last_step=0)

    np.testing.assert_allclose(np.sort(rows["seconds"].to_numpy()), np.sort(fast.seconds(0)), atol=1e-6)


def test_every_metric_that_the_nodes_sent_comes_back(client: TelemetryClient) -> None:
    until_ns = time.time_ns()
    insert_host_metrics(client, SimulatedTelemetry(n_ranks=16), until_ns=until_ns)

    rows = StoredTelemetry(client).metric_series(
        nodes=[node_name(0), node_name(1)], since_ns=until_ns - 900 * 10**9, until_ns=until_ns, points=30
    )

    assert set(rows["metric"].to_pylist()) >= {"temperature_celsius", "cpu_busy_ratio"}
    assert set(rows["node"].to_pylist()) == {node_name(0), node_name(1)}
