"""What the other parts ask of the telemetry store. Every answer counts a record once, however often it arrived.

Repeats collapse by FINAL where values are summed or counted; elsewhere (the newest, the largest) they do no harm.
Measured on two busy cores, 1,024 ranks x 64 ops x 50 steps (3.3 M rows, 8 parts): a count took 0.06 s without FINAL,
0.35 s with it (0.03 s once merged), 1.7 s by LIMIT 1 BY key and 1.4 s by GROUP BY key. step_phases of all of it takes
1.1 s of CPU on two threads; of 10,000 ranks x 30 ops x 25 steps (7.5 M rows, 1.5 M rows of answer) 3.4 s; of one step
of these 0.3 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import Any

import pyarrow as pa

from collector.store.telemetry.client import TelemetryClient

PHASES = ("forward", "backward", "optimizer", "loader", "collective", "step")

# Constant parts of statements. Values never become part of the text: they are bound as {name:Type}.
_PARTS = {
    # (run, step, op) is how `ops` is sorted: within the steps asked for, naming the ops lets the index skip all others
    "of_kinds": "op IN (SELECT op FROM op_names WHERE run = {run:String} AND kind IN {kinds:Array(String)})",
    "in_steps": "step BETWEEN {first_step:UInt32} AND {last_step:UInt32}",
    "names": """(
        SELECT op, any(kind) AS kind, any(name) AS name, any(module) AS module
        FROM op_names WHERE run = {run:String} GROUP BY op
    ) AS names""",
}


def step_phases(client: TelemetryClient, run: str, *, first_step: int, last_step: int) -> pa.Table:
    """Return what each rank did in the steps first..last, both included, ordered by step, rank, micro and PHASES.

    Returns:
        rank, step, micro, phase (one of PHASES), seconds (their sum), start_ns (of the first), n. A step that a rank
        did again after a restart is given as its newest epoch did it.
    """
    # The phase is a number up to the end: grouping by a string among the keys takes a third more CPU.
    sql = _sql("""
        SELECT rank, step, micro, {kinds:Array(String)}[phase_index] AS phase,
            argMax(seconds, first_ns) AS seconds, max(first_ns) AS start_ns, argMax(n, first_ns) AS n
        FROM (
            SELECT rank, epoch, step, micro, phase_index,
                sum(value) / 1e9 AS seconds, min(ops.start_ns) AS first_ns, count() AS n
            FROM ops FINAL INNER JOIN (
                SELECT op, toUInt8(indexOf({kinds:Array(String)}, any(kind))) AS phase_index
                FROM op_names WHERE run = {run:String} GROUP BY op
            ) AS phases USING op
            WHERE run = {run:String} AND $of_kinds AND $in_steps
            GROUP BY rank, epoch, step, micro, phase_index
        )
        GROUP BY rank, step, micro, phase_index
        ORDER BY step, rank, micro, phase_index
    """)
    return client.query(sql, _bound(run, PHASES, first_step, last_step))


def newest_steps(client: TelemetryClient, run: str, *, first_step: int, since_ns: int) -> pa.Table:
    """Return rank and last_step of the ranks that ended a step from `first_step` on, begun since `since_ns` (unix ns).

    The lower bound on the step makes it read a window, not the run's whole history.
    """
    sql = _sql("""
        SELECT rank, max(step) AS last_step
        FROM ops WHERE run = {run:String} AND $of_kinds AND step >= {first_step:UInt32} AND start_ns >= {since:Int64}
        GROUP BY rank ORDER BY rank
    """)
    return client.query(sql, {"run": run, "kinds": ["step"], "first_step": first_step, "since": since_ns})


def compute_seconds(client: TelemetryClient, run: str, *, first_step: int, last_step: int) -> pa.Table:
    """Return rank, step and seconds (of forward and backward together) of every step that the rank finished.

    One row per rank and step, where step_phases gives one per phase and micro-batch: at 10,000 ranks x 300 steps that
    is 3 M rows instead of 18 M or more. A step without its step record is still under way and would look fast, so it is
    left out. A step that a rank did again after a restart is given as its newest epoch did it.
    """
    steps = "(SELECT op FROM op_names WHERE run = {run:String} AND kind = 'step')"
    sql = _sql(
        """
        SELECT rank, step, argMax(own, first_ns) AS seconds
        FROM (
            SELECT rank, epoch, step, min(start_ns) AS first_ns,
                countIf(op IN $steps) AS ended, sumIf(value, op NOT IN $steps) / 1e9 AS own
            FROM ops FINAL WHERE run = {run:String} AND $of_kinds AND $in_steps
            GROUP BY rank, epoch, step
        )
        WHERE ended > 0 AND own > 0
        GROUP BY rank, step
    """,
        steps=steps,
    )
    return client.query(sql, _bound(run, ("forward", "backward", "step"), first_step, last_step))


def step_seconds(client: TelemetryClient, run: str, *, first_step: int, last_step: int) -> pa.Table:
    """Return step, seconds_median, seconds_max, seconds_p05, seconds_p95 (over ranks, interpolated) and n_ranks."""
    sql = _sql("""
        SELECT step,
            quantileExactInclusive(0.5)(seconds) AS seconds_median,
            max(seconds) AS seconds_max,
            quantileExactInclusive(0.05)(seconds) AS seconds_p05,
            quantileExactInclusive(0.95)(seconds) AS seconds_p95,
            count() AS n_ranks
        FROM (
            SELECT step, rank, argMax(value, start_ns) / 1e9 AS seconds
            FROM ops WHERE run = {run:String} AND $of_kinds AND $in_steps
            GROUP BY step, rank
        )
        GROUP BY step ORDER BY step
    """)
    return client.query(sql, _bound(run, ("step",), first_step, last_step))


def samples(client: TelemetryClient, run: str, *, names: Sequence[str], first_step: int, last_step: int) -> pa.Table:
    """Return step, name, value_median, value_min, value_max, n_ranks of the samples; of each rank and step the last.

    One rank's NaN makes value_min and value_max NaN. The median is of the ranks that have a number, NaN if none has;
    infinities count as numbers.
    """
    sql = _sql("""
        SELECT step, name,
            (quantileExactLowIf(0.5)(number, is_number) + quantileExactHighIf(0.5)(number, is_number)) / 2
                AS value_median,
            if(countIf(is_number) < count(), nan, min(number)) AS value_min,
            if(countIf(is_number) < count(), nan, max(number)) AS value_max,
            count() AS n_ranks
        FROM (
            SELECT step, rank, names.name AS name, reinterpret(argMax(value, (start_ns, record)), 'Float64') AS number,
                NOT isNaN(number) AS is_number
            FROM ops INNER JOIN $names USING op
            WHERE run = {run:String} AND $of_kinds AND $in_steps AND names.name IN {names:Array(String)}
            GROUP BY step, rank, name
        )
        GROUP BY step, name ORDER BY name, step
    """)
    return client.query(sql, {**_bound(run, ("sample",), first_step, last_step), "names": list(names)})


def metric_names(client: TelemetryClient, *, nodes: Sequence[str], since_ns: int, until_ns: int) -> list[str]:
    """Return the metrics that any of the nodes sent between since_ns and until_ns, in order."""
    sql = """
        SELECT DISTINCT metric FROM metrics
        WHERE node IN {nodes:Array(String)} AND time_ns >= {since:Int64} AND time_ns < {until:Int64}
        ORDER BY metric
    """
    found = client.query(sql, {"nodes": list(nodes), "since": since_ns, "until": until_ns})
    names: list[str] = found["metric"].to_pylist()
    return names


def metric_series(
    client: TelemetryClient,
    *,
    nodes: Sequence[str],
    metrics: Sequence[str],
    since_ns: int,
    until_ns: int,
    points: int,
) -> pa.Table:
    """Return node, device, metric, time_ns (of the bucket's start) and value (its largest), at most `points` a series.

    The largest, since a mean would hide the moment of heat or pressure that one looks for.
    """
    sql = """
        SELECT node, device, metric,
            {since:Int64} + intDiv(time_ns - {since:Int64}, {width:Int64}) * {width:Int64} AS bucket_ns,
            max(value) AS value
        FROM metrics
        WHERE node IN {nodes:Array(String)} AND metric IN {metrics:Array(String)}
            AND time_ns >= {since:Int64} AND time_ns < {until:Int64}
        GROUP BY node, device, metric, bucket_ns
        ORDER BY node, metric, device, bucket_ns
    """
    width = max(1, -(-(until_ns - since_ns) // max(1, points)))
    bound = {"nodes": list(nodes), "metrics": list(metrics), "since": since_ns, "until": until_ns, "width": width}
    return client.query(sql, bound).rename_columns({"bucket_ns": "time_ns"})


def count_records(client: TelemetryClient, run: str) -> pa.Table:
    """Return rank, epoch, rows (as they arrived), records (distinct ones) and last_record (the highest number)."""
    sql = """
        SELECT rank, epoch, rows, records, last_record
        FROM (SELECT rank, epoch, count() AS rows FROM ops WHERE run = {run:String} GROUP BY rank, epoch) AS arrived
        INNER JOIN (
            SELECT rank, epoch, count() AS records, max(record) AS last_record
            FROM ops FINAL WHERE run = {run:String} GROUP BY rank, epoch
        ) AS distinct_ones USING (rank, epoch)
        ORDER BY rank, epoch
    """
    return client.query(sql, {"run": run})


def record_totals(client: TelemetryClient, run: str) -> pa.Table:
    """Return one row: rows (as readers see them) and numbers (different record numbers), summed over epochs."""
    sql = """
        SELECT sum(rows) AS rows, sum(numbers) AS numbers FROM (
            SELECT count() AS rows, uniqExact(record) AS numbers FROM ops FINAL WHERE run = {run:String} GROUP BY epoch)
    """
    return client.query(sql, {"run": run})


def _sql(text: str, **parts: str) -> str:
    return Template(text).substitute(_PARTS, **parts)


def _bound(run: str, kinds: Sequence[str], first_step: int, last_step: int) -> dict[str, Any]:
    return {"run": run, "kinds": list(kinds), "first_step": first_step, "last_step": last_step}
