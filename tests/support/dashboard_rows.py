"""The simulated run of dashboard_scene as rows of a real telemetry store."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from collector.store.telemetry.client import TelemetryClient
from dashboard_scene import RANKS_PER_NODE, SimulatedTelemetry, node_name
from flightwatch._ops import Op

FORWARD, BACKWARD, STEP = Op("forward", "block"), Op("backward", "block"), Op("step", "step")
SAMPLES = {"loss": Op("sample", "loss"), "grad_norm": Op("sample", "grad_norm")}
RECORDS_PER_STEP = 5
SECOND = 1_000_000_000


def insert_names(client: TelemetryClient, run: str) -> None:
    """Insert the run's op names."""
    ops = [FORWARD, BACKWARD, STEP, *SAMPLES.values()]
    client.insert(
        "op_names",
        {
            "run": [run] * len(ops),
            "op": np.array([op.key for op in ops], dtype=np.uint64),
            "kind": [op.kind for op in ops],
            "name": [op.name for op in ops],
            "module": [""] * len(ops),
            "process_group": [""] * len(ops),
            "members": [[] for _ in ops],
            "dtype": [""] * len(ops),
            "size_class": np.zeros(len(ops), dtype=np.uint8),
            "backend": [""] * len(ops),
        },
    )


def insert_steps(
    client: TelemetryClient,
    telemetry: SimulatedTelemetry,
    run: str,
    *,
    first: int,
    last: int,
    begun_ns: int,
    life: int = 0,
) -> None:
    """Insert finished steps first..last of all ranks, one a second since `begun_ns`, as done in their `life`th life."""
    steps = np.arange(first, last + 1)
    n = telemetry.n_ranks
    rank, step = np.tile(np.arange(n), len(steps)), np.repeat(steps, n)
    compute_ns = np.stack([telemetry.seconds(int(one)) for one in steps]) * SECOND
    whole_ns = np.broadcast_to(compute_ns.max(axis=1, keepdims=True) + 0.1 * SECOND, compute_ns.shape)
    spans = [(FORWARD, compute_ns / 3), (BACKWARD, compute_ns * 2 / 3), (STEP, whole_ns)]
    for number, (op, values) in enumerate(spans):
        insert_records(client, run, op, step, rank, values.ravel().astype(np.int64), number, begun_ns, life)
    reported = telemetry.samples(run, names=list(SAMPLES), first_step=first, last_step=last)
    for number, (name, op) in enumerate(SAMPLES.items(), start=len(spans)):
        own = reported.filter(pc.equal(reported["name"], name))
        values = np.where(np.isnan(own["value_max"].to_numpy()), np.nan, own["value_median"].to_numpy())
        bits = np.ascontiguousarray(values).view(np.int64)
        insert_records(client, run, op, steps, np.zeros(len(steps)), bits, number, begun_ns, life)


def insert_host_metrics(client: TelemetryClient, telemetry: SimulatedTelemetry, *, until_ns: int) -> None:
    """Insert 15 minutes of host telemetry of all nodes."""
    nodes = [node_name(number) for number in range(telemetry.n_ranks // RANKS_PER_NODE)]
    table = telemetry.metric_series(nodes=nodes, since_ns=until_ns - 900 * SECOND, until_ns=until_ns, points=60)
    client.insert(
        "metrics",
        {
            name: table[name].to_pylist() if name in ("node", "device", "metric") else table[name].to_numpy()
            for name in table.column_names
        },
    )


def insert_records(
    client: TelemetryClient,
    run: str,
    op: Op,
    step: np.ndarray,
    rank: np.ndarray,
    values: np.ndarray,
    number: int,
    begun_ns: int,
    life: int = 0,
) -> None:
    """Insert one record of `op` per (step, rank): the `number`th of its step."""
    n = len(rank)
    client.insert(
        "ops",
        {
            "run": (np.zeros(n, dtype=np.int64), [run]),
            "op": np.full(n, op.key, dtype=np.uint64),
            "step": step.astype(np.uint32),
            "rank": rank.astype(np.uint32),
            "epoch": (rank + 1 + life * 1_000_000).astype(np.uint64),
            "record": (step * RECORDS_PER_STEP + number).astype(np.uint64),
            "start_ns": (begun_ns + step * SECOND).astype(np.int64),
            "value": values,
            "seq": np.zeros(n, dtype=np.uint32),
            "micro": np.zeros(n, dtype=np.uint32),
        },
    )
