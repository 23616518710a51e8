"""A simulated run for the dashboard's tests: records in a real SQLite store, telemetry computed on demand."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from analytics.findings import Cost, Evidence, Finding
from collector.store.records import Base, Delivery, Incident, Node, Rank, Run, StoredFinding
from collector.store.records.session import UnitOfWork, open_engine

START = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
RANKS_PER_NODE = 8


@dataclass
class SimulatedTelemetry:
    """The answers of a telemetry store to which `n_ranks` ranks (dp x pp x tp) send a step a second.

    Ranks of the `slow_node` take `slow_factor` times as long from step `slow_from` on. Seeded by step, so that a step's
    numbers do not depend on how it is asked for. `asked` records the spans that were asked for.
    """

    n_ranks: int = 1024
    pp: int = 4
    tp: int = 8
    slow_node: int = 9
    slow_factor: float = 1.4
    slow_from: int = 200
    absent: frozenset[tuple[int, int]] = frozenset()
    nonfinite_steps: frozenset[int] = frozenset()
    asked: list[tuple[int, int]] = field(default_factory=list)

    def seconds(self, step: int) -> np.ndarray:
        """Return the compute seconds (n_ranks,) of one step."""
        ranks = np.arange(self.n_ranks)
        stage = (ranks // self.tp) % self.pp
        level = 0.55 + 0.04 * (stage == self.pp - 1)
        noise = np.random.default_rng(step).normal(0, 0.015, self.n_ranks)
        slow = (ranks // RANKS_PER_NODE == self.slow_node) & (step >= self.slow_from)
        return np.asarray(level * np.exp(noise) * np.where(slow, self.slow_factor, 1.0))

    def compute_seconds(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        self.asked.append((first_step, last_step))
        steps = np.arange(first_step, last_step + 1)
        rank = np.tile(np.arange(self.n_ranks), len(steps))
        step = np.repeat(steps, self.n_ranks)
        seconds = np.concatenate([self.seconds(int(s)) for s in steps]) if len(steps) else np.zeros(0)
        if self.absent:
            kept = np.array([(r, s) not in self.absent for r, s in zip(rank.tolist(), step.tolist(), strict=True)])
            rank, step, seconds = rank[kept], step[kept], seconds[kept]
        return pa.table({"rank": rank.astype(np.uint32), "step": step.astype(np.uint32), "seconds": seconds})

    def step_seconds(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        steps = np.arange(first_step, last_step + 1)
        middle = np.array([0.98 + (0.2 if s >= self.slow_from else 0.0) + 0.01 * np.sin(s / 7) for s in steps])
        wobble = np.array([np.random.default_rng(int(s)).uniform(0, 0.05) for s in steps])
        return pa.table(
            {
                "step": steps.astype(np.uint32),
                "seconds_median": middle,
                "seconds_max": middle * 1.04 + wobble,
                "seconds_p05": middle * 0.985,
                "seconds_p95": middle * 1.02,
                "n_ranks": np.full(len(steps), self.n_ranks),
            }
        )

    def samples(self, run: str, *, names: Sequence[str], first_step: int, last_step: int) -> pa.Table:
        steps = np.arange(first_step, last_step + 1)
        columns: dict[str, list[Any]] = {
            name: [] for name in ("step", "name", "value_median", "value_min", "value_max")
        }
        for name in names:
            top, floor = (8.0, 2.6) if name == "loss" else (1.4, 0.4)
            for s in steps.tolist():
                value = floor + (top - floor) * np.exp(-s / 160) + 0.03 * np.random.default_rng(s).normal()
                is_bad = s in self.nonfinite_steps
                columns["step"].append(s)
                columns["name"].append(name)
                columns["value_median"].append(value)
                columns["value_min"].append(float("nan") if is_bad else value - 0.05)
                columns["value_max"].append(float("nan") if is_bad else value + 0.05)
        return pa.table({**columns, "n_ranks": [1] * len(columns["step"])})

    def metric_series(self, *, nodes: Sequence[str], since_ns: int, until_ns: int, points: int) -> pa.Table:
        times = np.linspace(since_ns, until_ns, points).astype(np.int64)
        rows: dict[str, list[Any]] = {name: [] for name in ("node", "device", "metric", "time_ns", "value")}
        levels = {
            "cpu_busy_ratio": 0.22,
            "memory_available_bytes": 7e11,
            "network_received_bytes_per_second": 4.1e9,
            "temperature_celsius": 61.0,
        }
        rng = np.random.default_rng(7)
        for number, node in enumerate(nodes):
            for metric, level in levels.items():
                hot = metric == "temperature_celsius" and number == self.slow_node
                drift = np.linspace(0, 24 if hot else 0, points)
                values = level * (1 + 0.03 * rng.normal(size=points)) + drift
                rows["node"] += [node] * points
                rows["device"] += [""] * points
                rows["metric"] += [metric] * points
                rows["time_ns"] += times.tolist()
                rows["value"] += values.tolist()
        return pa.table(rows)

    def ping(self) -> None:
        """Answer."""


def node_name(number: int) -> str:
    return f"node-{number:04d}"


def empty_records(folder: Path) -> Engine:
    """Return a records store without rows."""
    engine = open_engine(f"sqlite:///{folder / 'records.sqlite'}")
    Base.metadata.create_all(engine)
    return engine


def seed_run(
    engine: Engine,
    *,
    run_id: str = "demo",
    name: str = "gpt-1024",
    n_ranks: int = 1024,
    pp: int = 4,
    tp: int = 8,
    last_step: int = 299,
    now: datetime = START,
    state: str = "running",
) -> None:
    """Add a run with its ranks and nodes."""
    begun = now - timedelta(seconds=last_step + 1)
    with UnitOfWork(engine, writing=True) as work:
        work.session.add(
            Run(
                id=run_id,
                name=name,
                state=state,
                world_size=n_ranks,
                started_at=begun,
                last_seen_at=now,
                ended_at=now if state == "ended" else None,
                last_step=last_step,
                revision=last_step,
            )
        )
        work.session.flush()
        for number in range(-(-n_ranks // RANKS_PER_NODE)):
            node = Node(name=node_name(number), first_seen_at=begun, last_seen_at=now)
            work.session.merge(node)
        work.session.add_all(
            rank_record(run_id, rank, world_size=n_ranks, pp=pp, tp=tp, begun=begun) for rank in range(n_ranks)
        )


def rank_record(run_id: str, rank: int, *, world_size: int, begun: datetime, pp: int = 4, tp: int = 8) -> Rank:
    """Return the record of one rank of a dp x pp x tp job, eight to a node."""
    return Rank(
        epoch=f"{zlib.crc32(run_id.encode()):08x}{rank:08x}",
        run_id=run_id,
        rank=rank,
        world_size=world_size,
        local_rank=rank % RANKS_PER_NODE,
        node=node_name(rank // RANKS_PER_NODE),
        coordinates={"dp": rank // (pp * tp), "pp": rank // tp % pp, "tp": rank % tp},
        sources={},
        clock_offset_ns=0,
        started_at=begun,
    )


def slow_node_finding(*, node: int = 9, first_step: int = 200, last_step: int = 299) -> Finding:
    """Return the finding that names one slow node."""
    ranks = tuple(range(node * RANKS_PER_NODE, (node + 1) * RANKS_PER_NODE))
    name = node_name(node)
    return Finding(
        id="01FINDING",
        kind="slow_rank",
        cause="host",
        ranks=ranks,
        nodes=(name,),
        entity=f"node:{name}",
        severity="critical",
        first_step=first_step,
        last_step=last_step,
        confidence=0.97,
        summary=f"All 8 ranks of {name} compute 1.40 times as long as their peers since step {first_step}.",
        next=f"Drain {name} and run its burn-in; restart the job from the last checkpoint on a spare node.",
        detector="slow_rank/1",
        evict=True,
        cost=Cost(slowdown=1.22, wasted_accelerator_hours=5.1),
        evidence=(
            Evidence(
                "ratio", "Ranks 72-79 took 0.77 s of compute a step where their peers took 0.55 s", 1.40, "×", 1.0
            ),
            Evidence("persistence", "They were slower in 99 of 100 steps", 0.99, "of steps", 0.02),
            Evidence("sharing", "No rank outside this node is slow", 0, "ranks", 0),
        ),
        ruled_out=(
            "sequence length: micro-batches of equal length are slow too",
            "stage partition: pp 1 is fast elsewhere",
        ),
        would_change_my_mind=f"The same ranks at their peers' speed after a move off {name}.",
    )


def seed_incident(
    engine: Engine, *, run_id: str = "demo", incident_id: str = "01INCIDENT", now: datetime = START
) -> None:
    """Add an open incident with its findings and a delivery."""
    finding = slow_node_finding()
    body = finding.to_json()
    opened = now - timedelta(seconds=75)
    with UnitOfWork(engine, writing=True) as work:
        work.session.add(
            Incident(
                id=incident_id,
                run_id=run_id,
                kind=finding.kind,
                cause=finding.cause,
                entity=finding.entity,
                severity=finding.severity,
                opened_at=opened,
                updated_at=now,
                opened_step=224,
                first_step=finding.first_step,
                last_step=finding.last_step,
                ranks=list(finding.ranks),
                nodes=list(finding.nodes),
                summary=finding.summary,
                confidence=finding.confidence,
                slowdown=finding.cost.slowdown,
                finding=body,
            )
        )
        work.session.flush()
        for number in range(3):
            moment = opened + timedelta(seconds=25 * number)
            row = StoredFinding(id=f"01F{number}", run_id=run_id, incident_id=incident_id, created_at=moment, body=body)
            work.session.add(row)
        work.session.add(
            Delivery(
                id="msg_1",
                incident_id=incident_id,
                event="incident.opened",
                channel="webhook",
                body="{}",
                state="sent",
                attempts=1,
                created_at=opened,
                next_attempt_at=opened,
                sent_at=opened + timedelta(seconds=1),
            )
        )


def advance(engine: Engine, *, run_id: str = "demo", steps: int = 1, now: datetime | None = None) -> int:
    """Let the run finish `steps` more steps, and return its last step."""
    with UnitOfWork(engine, writing=True) as work:
        run = work.session.get_one(Run, run_id)
        run.last_step += steps
        run.revision += 1
        run.last_seen_at = now or datetime.now(UTC)
        return run.last_step
