"""Synthetic op traces in the columns of the public ones: dp x pp ranks whose ops wait for each other as 1F1B has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TRANSFER_SECONDS = 0.002
FORWARD_SECONDS, BACKWARD_SECONDS = 0.20, 0.40
TYPES = {
    "dp_rank": pa.int8(),
    "stage": pa.int8(),
    "rank": pa.int16(),
    "step": pa.int64(),
    "optype": pa.string(),
    "start_ts": pa.float32(),
    "duration": pa.float32(),
    "seq_id": pa.int32(),
    "mc": pa.int8(),
    "mb_id": pa.int8(),
    "gmc": pa.int16(),
}
Row = tuple[int, int, int, int, str, float, float, int, int, int, int]


def columns(
    *,
    dp: int = 2,
    pp: int = 4,
    n_steps: int = 32,
    n_micro: int = 4,
    stages: tuple[float, ...] = (),
    slow: Mapping[int, float] | None = None,
    noise: float = 0.01,
    seed: int = 0,
) -> dict[str, pa.Array]:
    """Return the trace's columns; rank r stands at dp r // pp, stage r % pp, and takes `slow[r]` times its time."""
    rng = np.random.default_rng(seed)
    level = np.array(stages or (1.0,) * pp)
    rows: list[Row] = []
    for step in range(n_steps):
        scatter = np.exp(noise * rng.standard_t(5, (2, dp, pp, n_micro)))
        work = np.array([FORWARD_SECONDS, BACKWARD_SECONDS])[:, None, None, None] * scatter * level[:, None]
        for rank, factor in (slow or {}).items():
            work[:, rank // pp, rank % pp] *= factor
        rows += _step(step, work)
    values = zip(*rows, strict=True)
    return {name: pa.array(column, TYPES[name]) for name, column in zip(TYPES, values, strict=True)}


def write(path: Path, table: Mapping[str, pa.Array]) -> Path:
    pq.write_table(pa.table(dict(table)), path)
    return path


def keep(table: Mapping[str, pa.Array], wanted: np.ndarray) -> dict[str, pa.Array]:
    return {name: column.filter(pa.array(wanted)) for name, column in table.items()}


def _step(step: int, work: np.ndarray) -> list[Row]:
    n_dp, n_stages = work.shape[1:3]
    rows: list[Row] = []
    last = np.zeros((n_dp, n_stages))

    def add(dp: int, stage: int, op: str, start: float, end: float, seq: int = 0, mc: int = -1, mb: int = -1) -> None:
        gmc = stage if op.endswith("compute") else -1
        rows.append((dp, stage, dp * n_stages + stage, step, op, start, end - start, seq, mc, mb, gmc))

    for dp in range(n_dp):
        for stage in range(n_stages):
            add(dp, stage, "params-all-gather", 0.0, 0.05, mc=0)
        last[dp] = _pipeline(dp, work[:, dp], add)
    for dp in range(n_dp):
        for stage in range(n_stages):
            begin = last[dp, stage]
            add(dp, stage, "gc", begin, begin, mb=0)
            add(dp, stage, "layernorm-grads-all-reduce", begin, begin + 0.003)
    reduced = last + 0.003
    for stage in {0, n_stages - 1}:
        end = last[:, [0, -1]].max(axis=1) + 0.01  # the first and the last stage of one replica
        for dp in range(n_dp):
            add(dp, stage, "embedding-grads-all-reduce", reduced[dp, stage], end[dp])
        reduced[:, stage] = end
    scattered = reduced.max(axis=0) + 0.05  # all replicas of one stage
    clipped = scattered.max() + 0.02  # all ranks
    for dp in range(n_dp):
        for stage in range(n_stages):
            add(dp, stage, "grads-reduce-scatter", reduced[dp, stage], scattered[stage], mc=0)
            add(dp, stage, "optimizer-clip-main-grad", scattered[stage], clipped)
            add(dp, stage, "optimizer", clipped, clipped + 0.02)
    return rows


def _pipeline(dp: int, work: np.ndarray, add: object) -> np.ndarray:
    """Add one replica's computes and transfers, and return when each stage's last backward ends."""
    assert callable(add)
    n_stages, n_micro = work.shape[1:]
    free = np.full(n_stages, 0.05)
    ended: dict[tuple[int, int, int], float] = {}
    queues = [_schedule(stage, n_stages, n_micro) for stage in range(n_stages)]
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue:
                kind, micro = queue[0]
                sender = stage - 1 if kind == 0 else stage + 1
                name = ("forward", "backward")[kind]
                if 0 <= sender < n_stages:
                    if (kind, sender, micro) not in ended:
                        break
                    sent = ended[kind, sender, micro]
                    arrived = max(sent, free[stage]) + TRANSFER_SECONDS
                    add(dp, stage, f"{name}-recv", free[stage], arrived, micro)
                    add(dp, sender, f"{name}-send", sent, arrived, micro)
                    free[stage] = arrived
                start = free[stage]
                free[stage] = start + work[kind, stage, micro]
                ended[kind, stage, micro] = free[stage]
                add(dp, stage, f"{name}-compute", start, free[stage], micro, 0, micro)
                queue.pop(0)
    return free


def _schedule(stage: int, n_stages: int, n_micro: int) -> list[tuple[int, int]]:
    warm_up = min(n_stages - 1 - stage, n_micro)
    pairs = [op for micro in range(n_micro - warm_up) for op in ((0, warm_up + micro), (1, micro))]
    return [(0, m) for m in range(warm_up)] + pairs + [(1, m) for m in range(n_micro - warm_up, n_micro)]
