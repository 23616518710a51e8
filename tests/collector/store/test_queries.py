"""The queries against a naive account in Python, over a real store; everything is inserted twice, as after a resend."""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
import pytest

from collector.store.telemetry import queries
from collector.store.telemetry.client import TelemetryClient, connect
from flightwatch._ops import Op

START_NS = 1_796_000_000_000_000_000
FORWARD = Op("forward", "layer", "model.0")
FORWARD_TOO = Op("forward", "layer", "model.1")
LOADER = Op("loader", "next")
STEP = Op("step", "step")
ALL_REDUCE = Op("collective", "all_reduce", group="dp", members=(0, 1, 2))
ISSUE = Op("issue", "all_reduce", group="dp", members=(0, 1, 2))
LOSS = Op("sample", "loss")
GRAD_NORM = Op("sample", "grad_norm")
OPS = (FORWARD, FORWARD_TOO, LOADER, STEP, ALL_REDUCE, ISSUE, LOSS, GRAD_NORM)


class Job:
    """A run of a test's own, into which records are put as a collector would."""

    def __init__(self, client: TelemetryClient) -> None:
        self.client = client
        self.run = "run-" + uuid.uuid4().hex
        self._records: dict[int, int] = {}
        client.insert("op_names", self._descriptors())
        client.insert("op_names", self._descriptors())

    def put(self, op: Op, rank: int, step: int, value: int, **fields: int) -> None:
        """Insert one record, twice."""
        epoch = fields.get("epoch", 1000 + rank)
        number = self._records[epoch] = self._records.get(epoch, -1) + 1
        row: dict[str, np.ndarray[Any, Any]] = {
            "op": np.array([op.key], np.uint64),
            "step": np.array([step], np.uint32),
            "rank": np.array([rank], np.uint32),
            "epoch": np.array([epoch], np.uint64),
            "record": np.array([number], np.uint64),
            "start_ns": np.array([fields.get("start_ns", START_NS + step * 10**9 + number)], np.int64),
            "value": np.array([value], np.int64),
            "seq": np.array([fields.get("seq", 0)], np.uint32),
            "micro": np.array([fields.get("micro", 0)], np.uint32),
        }
        twice = {name: np.repeat(column, 2) for name, column in row.items()}
        self.client.insert("ops", {"run": [self.run] * 2, **twice})

    def put_sample(self, op: Op, rank: int, step: int, number: float) -> None:
        """Insert a sample: the bits of its f64 in the value."""
        self.put(op, rank, step, struct.unpack("<q", struct.pack("<d", number))[0])

    def _descriptors(self) -> dict[str, Any]:
        return {
            "run": [self.run] * len(OPS),
            "op": [op.key for op in OPS],
            "kind": [op.kind for op in OPS],
            "name": [op.name for op in OPS],
            "module": [op.module for op in OPS],
            "process_group": [op.group for op in OPS],
            "members": [list(op.members) for op in OPS],
            "dtype": [op.dtype for op in OPS],
            "size_class": np.array([op.size_class for op in OPS], np.uint8),
            "backend": [op.backend for op in OPS],
        }


@pytest.fixture
def job(store_url: str) -> Job:
    return Job(connect(store_url))


def columns(table: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_phases_are_summed_once_per_rank_step_and_micro_batch(job: Job) -> None:
    for micro in (0, 1):
        job.put(FORWARD, 0, 5, 2_000_000_000, micro=micro, start_ns=START_NS + micro)
        job.put(FORWARD_TOO, 0, 5, 1_000_000_000, micro=micro, start_ns=START_NS + 10 + micro)
    job.put(LOADER, 1, 5, 500_000_000, start_ns=START_NS)
    job.put(ISSUE, 1, 5, 4096)
    job.put_sample(LOSS, 1, 5, 3.5)

    table = queries.step_phases(job.client, job.run, first_step=5, last_step=5)

    assert columns(table, ["rank", "step", "micro", "phase", "seconds", "start_ns", "n"]) == [
        (0, 5, 0, "forward", 3.0, START_NS, 2),
        (0, 5, 1, "forward", 3.0, START_NS + 1, 2),
        (1, 5, 0, "loader", 0.5, START_NS, 1),
    ]


def test_phases_keep_to_the_wanted_steps(job: Job) -> None:
    for step in range(6):
        job.put(STEP, 0, step, 10**9)

    table = queries.step_phases(job.client, job.run, first_step=2, last_step=4)

    assert table["step"].to_pylist() == [2, 3, 4]


def test_a_step_done_again_after_a_restart_counts_as_done_last(job: Job) -> None:
    job.put(FORWARD, 0, 7, 9_000_000_000, epoch=1, start_ns=START_NS)
    job.put(FORWARD, 0, 7, 1_000_000_000, epoch=2, start_ns=START_NS + 60 * 10**9)

    table = queries.step_phases(job.client, job.run, first_step=7, last_step=7)

    assert columns(table, ["seconds", "n"]) == [(1.0, 1)]


def test_newest_step_of_each_rank_within_a_window(job: Job) -> None:
    for rank, last in ((0, 3), (1, 5), (2, 1)):
        for step in range(last + 1):
            job.put(STEP, rank, step, 100, start_ns=START_NS + step)
    job.put(STEP, 0, 9, 100, epoch=5, start_ns=START_NS - 1)  # of an earlier attempt

    table = queries.newest_steps(job.client, job.run, first_step=2, since_ns=START_NS)

    assert columns(table, ["rank", "last_step"]) == [(0, 3), (1, 5)]


def test_compute_seconds_are_those_of_blocks_in_finished_steps(job: Job) -> None:
    for rank, step in ((0, 1), (1, 1), (1, 2)):
        job.put(FORWARD, rank, step, 2_000_000_000)
        job.put(FORWARD_TOO, rank, step, 1_000_000_000 * (rank + 1))
        job.put(LOADER, rank, step, 9_000_000_000)
        if step == 1:
            job.put(STEP, rank, step, 20_000_000_000)

    table = queries.compute_seconds(job.client, job.run, first_step=0, last_step=9)

    assert sorted(columns(table, ["rank", "step", "seconds"])) == [(0, 1, 3.0), (1, 1, 4.0)]


def test_compute_seconds_of_a_step_done_again_are_the_newest(job: Job) -> None:
    for epoch, seconds in ((1, 4), (2, 3)):
        job.put(FORWARD, 0, 7, seconds * 10**9, epoch=epoch, start_ns=START_NS + epoch * 60 * 10**9)
        job.put(STEP, 0, 7, 5 * 10**9, epoch=epoch, start_ns=START_NS + epoch * 60 * 10**9)

    table = queries.compute_seconds(job.client, job.run, first_step=7, last_step=7)

    assert columns(table, ["rank", "step", "seconds"]) == [(0, 7, 3.0)]


def test_metric_names_are_those_of_the_nodes_and_times_asked_for(job: Job) -> None:
    node = "node-" + uuid.uuid4().hex
    rows: dict[str, Any] = {"node": [node] * 3, "device": [""] * 3, "metric": ["b", "a", "late"], "value": np.zeros(3)}
    times = np.array([START_NS, START_NS + 1, START_NS + 10], np.int64)
    job.client.insert("metrics", {**rows, "time_ns": times})

    names = queries.metric_names(job.client, nodes=[node], since_ns=START_NS, until_ns=START_NS + 10)

    assert names == ["a", "b"]


def test_step_seconds_are_those_of_numpy(job: Job) -> None:
    seconds = [1.0, 2.0, 4.0, 8.0, 16.0]
    for rank, value in enumerate(seconds):
        job.put(STEP, rank, 0, int(value * 1e9))

    row = queries.step_seconds(job.client, job.run, first_step=0, last_step=9).to_pylist()[0]

    assert row["n_ranks"] == 5
    assert row["seconds_max"] == 16.0
    assert row["seconds_median"] == pytest.approx(np.median(seconds))
    assert row["seconds_p05"] == pytest.approx(np.quantile(seconds, 0.05))
    assert row["seconds_p95"] == pytest.approx(np.quantile(seconds, 0.95))


def test_samples_are_pooled_over_ranks(job: Job) -> None:
    numbers = [2.5, 3.0, 9.0]
    for rank, number in enumerate(numbers):
        job.put_sample(LOSS, rank, 1, number)
        job.put_sample(GRAD_NORM, rank, 1, -number)

    table = queries.samples(job.client, job.run, names=["loss"], first_step=0, last_step=9)

    names = ["step", "name", "value_median", "value_min", "value_max", "n_ranks"]
    assert columns(table, names) == [(1, "loss", median(numbers), 2.5, 9.0, 3)]


def test_one_nan_among_the_ranks_is_not_hidden(job: Job) -> None:
    for rank, number in enumerate([1.0, math.nan, 3.0]):
        job.put_sample(LOSS, rank, 0, number)
    for rank, number in enumerate([1.0, math.inf, 3.0]):
        job.put_sample(LOSS, rank, 1, number)
    job.put_sample(LOSS, 0, 2, math.nan)

    rows = queries.samples(job.client, job.run, names=["loss"], first_step=0, last_step=9).to_pylist()

    found = [str((row["value_median"], row["value_min"], row["value_max"])) for row in rows]
    assert found == ["(2.0, nan, nan)", "(3.0, 1.0, inf)", "(nan, nan, nan)"]


def test_a_sample_logged_twice_in_a_step_counts_as_logged_last(job: Job) -> None:
    job.put_sample(LOSS, 0, 0, 5.0)
    job.put_sample(LOSS, 0, 0, 4.0)

    table = queries.samples(job.client, job.run, names=["loss"], first_step=0, last_step=0)

    assert columns(table, ["value_median", "n_ranks"]) == [(4.0, 1)]


def test_metric_series_keep_the_largest_of_each_bucket(job: Job) -> None:
    node = "node-" + uuid.uuid4().hex
    count = 100
    job.client.insert(
        "metrics",
        {
            "node": [node] * count,
            "device": ["cpu"] * count,
            "metric": ["temperature_celsius"] * count,
            "time_ns": START_NS + np.arange(count, dtype=np.int64),
            "value": np.arange(count, dtype=np.float64),
        },
    )

    table = queries.metric_series(
        job.client,
        nodes=[node, "other"],
        metrics=["temperature_celsius"],
        since_ns=START_NS,
        until_ns=START_NS + count,
        points=4,
    )

    assert columns(table, ["node", "device", "metric"]) == [(node, "cpu", "temperature_celsius")] * 4
    assert columns(table, ["time_ns", "value"]) == [(START_NS + at, at + 24.0) for at in (0, 25, 50, 75)]


def test_records_are_counted_once_however_often_they_arrived(job: Job) -> None:
    for step in range(3):
        job.put(STEP, 0, step, 1)
    job.put(STEP, 1, 0, 1)

    table = queries.count_records(job.client, job.run)

    assert columns(table, ["rank", "epoch", "records", "last_record"]) == [(0, 1000, 3, 2), (1, 1001, 1, 0)]


def test_repeats_collapse_within_and_across_inserts(job: Job) -> None:
    job.put(STEP, 0, 0, 1)

    again = job.client.query("SELECT * FROM ops WHERE run = {run:String}", {"run": job.run})
    job.client.insert("ops", {name: again[name].to_numpy() for name in again.column_names})

    table = queries.count_records(job.client, job.run)
    assert columns(table, ["records"]) == [(1,)]


def test_runs_do_not_see_each_other(job: Job) -> None:
    other = Job(job.client)
    other.put(STEP, 0, 0, 1)

    assert queries.newest_steps(job.client, job.run, first_step=0, since_ns=0).num_rows == 0
    assert queries.newest_steps(job.client, other.run, first_step=0, since_ns=0).num_rows == 1
