"""What a trace would have taken had some ranks been healthy: replay of the step's graph with other durations.

Source: "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI'25, arXiv 2505.05713): S, S_w,
M_W, M_S.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analytics.op_grid import OpGrid, code, grid_of
from analytics.step_graph import StepGraph, graph_of
from collector.ingest.straggler_trace import BACKWARD, FORWARD, StragglerTrace

Floats = NDArray[np.float64]

# Clocks of two ranks may disagree: a transfer that ends this much before its last arrival counts as 0. Source: 10 ms,
# OSDI'25.
CLOCK_SLACK_SECONDS = 0.010
TOP_WORKERS = 0.03  # share of workers healed for M_W; source: OSDI'25
ALIKE_STAGES = 0.1  # log; stages that differ by less count as alike
COMPUTE_LIKE = (FORWARD, BACKWARD, "gc", "optimizer")  # ideal = mean; every other kind is communication: median


@dataclass(frozen=True)
class WhatIf:
    """Replays of one trace. `work` (n_ops, n_dp, n_steps): compute as traced, transfers without their waits."""

    grid: OpGrid
    graph: StepGraph
    work: Floats
    ideal: Floats

    @classmethod
    def of(cls, trace: StragglerTrace) -> WhatIf | None:
        """Return the replay of `trace`, or None where its schedule cannot be replayed."""
        grid = grid_of(trace)
        graph = graph_of(grid) if grid is not None else None
        if grid is None or graph is None:
            return None
        work = _without_waits(grid, graph)
        ideal = _ideal(grid, work)
        return cls(grid, graph, np.where(np.isnan(work), ideal, work), ideal)

    def step_seconds(self, work: Floats) -> Floats:
        """Return the step times (n_steps,) in seconds if ops took `work`, with launch delays removed."""
        return replay(self.graph, work)

    @cached_property
    def seconds(self) -> float:
        """Return T: the mean step time as traced, without launch delays."""
        return float(self.step_seconds(self.work).mean())

    @cached_property
    def ideal_seconds(self) -> float:
        """Return T_ideal: the mean step time if every op took its kind's mean (compute) or median (communication)."""
        return float(self.step_seconds(self.ideal).mean())

    @property
    def slowdown(self) -> float:
        """Return S = T / T_ideal, 1 = nothing to gain."""
        return self.seconds / self.ideal_seconds

    def share_explained(self, healed: NDArray[np.bool_]) -> float:
        """Return the share of T - T_ideal that goes when the places `healed` (n_dp, n_stages) become ideal."""
        work = np.where(self._mask(healed), self.ideal, self.work)
        gap = self.seconds - self.ideal_seconds
        return (self.seconds - float(self.step_seconds(work).mean())) / gap if gap else 0.0

    @cached_property
    def worker_slowdowns(self) -> Floats:
        """Return S_w (n_dp, n_stages): the smaller of what its replica and what its stage alone add to the ideal
        step.
        """
        n_dp, n_stages = self.grid.ranks.shape
        replicas, stages = np.empty(n_dp), np.empty(n_stages)
        for dp in range(n_dp):
            work = self.ideal.copy()
            work[:, dp] = self.work[:, dp]
            replicas[dp] = self.step_seconds(work).mean()
        for stage in range(n_stages):
            of_stage = (self.grid.stage == stage)[:, None, None]
            stages[stage] = self.step_seconds(np.where(of_stage, self.work, self.ideal)).mean()
        return np.minimum(replicas[:, None], stages[None, :]) / self.ideal_seconds

    @cached_property
    def worker_share(self) -> float:
        """Return M_W: the share of the slowdown that the slowest 3 % of workers explain."""
        scores = self.worker_slowdowns
        n_top = -(-scores.size * int(TOP_WORKERS * 100) // 100)
        order = np.lexsort((self.grid.ranks.ravel(), -scores.ravel()))
        healed = np.zeros(scores.shape, dtype=bool)
        healed.flat[order[:n_top]] = True
        return self.share_explained(healed)

    @cached_property
    def last_stage_share(self) -> float:
        """Return M_S: the share of the slowdown that the last stage explains."""
        healed = np.zeros(self.grid.ranks.shape, dtype=bool)
        healed[:, -1] = True
        return self.share_explained(healed)

    def slowdown_by(self, ranks: Iterable[int]) -> float:
        """Return the mean step time over that with `ranks` healed, >= 1: what the job loses to them.

        A healed op takes the ideal of its kind, as in M_W. Where stages differ, it takes that times what its stage's
        healthy
        ranks take above the average stage, so that a heavy stage is not called sick.
        """
        sick = np.isin(self.grid.ranks, list(ranks))
        work = np.where(self._mask(sick), self.ideal * self._stage_factor(sick)[:, None, None], self.work)
        return max(self.seconds / float(self.step_seconds(work).mean()), 1.0)

    def _stage_factor(self, sick: NDArray[np.bool_]) -> Floats:
        """Return for each op (n_ops,) its stage's healthy median over the mean of all stages', 1 where none is
        healthy.
        """
        factor = np.ones(len(self.grid.optype))
        for optype in (code(FORWARD), code(BACKWARD)):
            levels = np.full(self.grid.n_stages, np.nan)
            for stage in range(self.grid.n_stages):
                ops = (self.grid.optype == optype) & (self.grid.stage == stage)
                healthy = self.work[ops][:, ~sick[:, stage]]
                if healthy.size:
                    levels[stage] = np.median(healthy)
            if np.isfinite(levels).any() and np.nanmean(levels) > 0:
                relative = np.where(np.isfinite(levels), levels / np.nanmean(levels), 1.0)
                if np.abs(np.log(relative)).max() < ALIKE_STAGES:
                    continue
                chosen = self.grid.optype == optype
                factor[chosen] = relative[self.grid.stage[chosen]]
        return factor

    def _mask(self, places: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.asarray(places.T[self.grid.stage][:, :, None])


def replay(graph: StepGraph, work: Floats) -> Floats:
    """Return step times (n_steps,) of a graph whose ops take `work` (n_ops, n_dp, n_steps) seconds and start as
    soon as they can.
    """
    n_ops, n_dp, n_steps = work.shape
    end = np.zeros((n_ops, n_dp, n_steps))
    for node in graph.nodes:
        began: Floats | float = 0.0
        for waits in node.waits_for:
            for op in waits:
                began = np.maximum(began, end[op])
        if node.over_dp and not isinstance(began, float):
            began = began.max(axis=0, keepdims=True)
        for op in node.ops:
            end[op] = began + work[op]
    return np.asarray(end[graph.last_ops].max(axis=(0, 1)))


def _without_waits(grid: OpGrid, graph: StepGraph) -> Floats:
    """Return durations with the wait for the last arrival taken out of communication."""
    work = grid.seconds.copy()
    for node in graph.nodes:
        if not node.is_comm:
            continue
        starts = grid.start[list(node.ops)]
        with np.errstate(invalid="ignore"):
            arrived = np.fmax.reduce(starts, axis=0)
            if node.over_dp:
                arrived = np.fmax.reduce(arrived, axis=0)[None]
        for op in node.ops:
            transfer = grid.start[op] + grid.seconds[op] - arrived
            work[op] = np.where(transfer <= -CLOCK_SLACK_SECONDS, 0.0, transfer)
    return work


def _ideal(grid: OpGrid, work: Floats) -> Floats:
    ideal = np.empty_like(work)
    means = {code(name) for name in COMPUTE_LIKE}
    for optype in np.unique(grid.optype):
        ops = grid.optype == optype
        ideal[ops] = np.nanmean(work[ops]) if int(optype) in means else np.nanmedian(work[ops])
    return ideal
