"""Sequence length: work that varies from micro-batch to micro-batch, in forward and backward alike, on no rank in
particular.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analytics.detectors.imbalance_case import Case
from analytics.findings import Evidence
from analytics.own_work import COMPUTE, shared_work_of
from analytics.pipeline_replay import replica_order, slowdown_against
from analytics.ratios import peer_log_ratios
from analytics.robust import median_along
from analytics.window import Topology, Window

Floats = NDArray[np.float64]

# Forward and backward of a micro-batch vary together when its work varies. Source: OSDI'25 (arXiv 2505.05713) takes
# this
# correlation as its proxy for sequence length; healthy noise of kernels correlates less.
MIN_FORWARD_BACKWARD = 0.9
# Stages of a replica work on the same micro-batches, so that their times must vary together as well.
MIN_ACROSS_STAGES = 0.8
MAX_SAMPLED = 512  # ranks looked at to tell whether work varies
MIN_VARIATION = 0.05  # log; smaller variations of work cost less than they matter


def sequence_length(window: Window, roles: NDArray[np.int64]) -> Case | None:
    """Return the case, or None where forward and backward do not vary together by micro-batch, or hardly at all.

    Args:
        window: forward and backward (n, m, k) with k > 1 micro-batches.
        roles: (n,) from `roles_of`.
    """
    if any(phase not in window.seconds for phase in COMPUTE):
        return None
    forward, backward = (window.seconds[phase] for phase in COMPUTE)
    if forward.shape != backward.shape or forward.shape[2] < 2:
        return None
    correlation, across, variation = _shared_variation(window, _sampled(window), roles)
    told = across != 0.0
    if correlation < MIN_FORWARD_BACKWARD or variation < MIN_VARIATION or (told and across < MIN_ACROSS_STAGES):
        return None
    slowdown = slowdown_against(window, {phase: _even(window.seconds[phase], roles) for phase in COMPUTE})
    evidence = [
        Evidence(
            "forward_backward_correlation",
            f"forward and backward of a micro-batch vary together: correlation {correlation:.3f}",
            correlation,
            "correlation",
            0.0,
        ),
        Evidence(
            "work_variation",
            f"the same op takes {np.expm1(variation):.0%} more or less from micro-batch to micro-batch, on every rank",
            variation,
            "log ratio",
            0.0,
        ),
    ]
    if told:
        text = f"stages of one replica vary together, micro-batch by micro-batch: correlation {across:.3f}"
        evidence.append(Evidence("stage_correlation", text, across, "correlation", 0.0))
    return Case(
        cause="sequence_length",
        entity="job",
        slowdown=slowdown,
        confidence=min(0.99, correlation),
        claim="micro-batches differ in work, as unequal sequences make them, and everybody waits for the longest",
        evidence=tuple(evidence),
        ruled_out=("a slow machine: what a rank is slow on changes with the micro-batch, and no rank stays behind",),
        doubt="token counts per micro-batch that are equal, or the same ranks behind in every step",
        advice="deal sequences out by length: sort or pack them so that every micro-batch holds about the same work",
    )


def _sampled(window: Window) -> NDArray[np.int64]:
    """Return indices of ranks that stand for all: whole replicas where they are told, spread over the job."""
    order = replica_order(window.topology)
    if order is None:
        n_ranks = len(window.topology.ranks)
        return np.unique(np.linspace(0, n_ranks - 1, min(n_ranks, MAX_SAMPLED)).astype(np.int64))
    n_replicas = order.shape[1]
    chosen = np.unique(
        np.linspace(0, n_replicas - 1, min(n_replicas, max(MAX_SAMPLED // len(order), 2))).astype(np.int64)
    )
    return np.sort(order[:, chosen].ravel())


def _shared_variation(
    window: Window, indices: NDArray[np.int64], roles: NDArray[np.int64]
) -> tuple[float, float, float]:
    """Return how forward and backward correlate, how stages correlate (0: not told), and how far work varies (log)."""
    cubes = [window.seconds[phase][indices] for phase in COMPUTE]
    forward, backward = (peer_log_ratios(cube.reshape(len(cube), -1), roles[indices]) for cube in cubes)
    total = (cubes[0] + cubes[1]).reshape(len(indices), -1)
    both = peer_log_ratios(total, roles[indices])
    topology = Topology(
        window.topology.ranks[indices],
        tuple(window.topology.nodes[index] for index in indices.tolist()),
        {name: values[indices] for name, values in window.topology.coordinates.items()},
    )
    across, _ = shared_work_of(both, topology)
    centred = both - median_along(both, 1)[:, None]
    variation = float(np.nanstd(centred)) if np.isfinite(centred).any() else 0.0
    return _correlation(forward, backward), across, variation


def _correlation(first: Floats, second: Floats) -> float:
    """Return the median over ranks of the correlation over micro-batches, 0 where none can be told."""
    seen = np.isfinite(first) & np.isfinite(second)
    count = np.maximum(seen.sum(axis=1), 1)[:, None]
    a, b = np.where(seen, first, 0.0), np.where(seen, second, 0.0)
    a = np.where(seen, a - a.sum(axis=1, keepdims=True) / count, 0.0)
    b = np.where(seen, b - b.sum(axis=1, keepdims=True) / count, 0.0)
    power = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    usable = (power > 0) & (seen.sum(axis=1) > 2)
    if not usable.any():
        return 0.0
    return float(np.median((a * b).sum(axis=1)[usable] / power[usable]))


def _even(cube: Floats, roles: NDArray[np.int64]) -> Floats:
    """Return the cube with every micro-batch at the mean of its role: the same work, dealt out evenly."""
    even = np.full_like(cube, np.nan)
    for role in np.unique(roles):
        chosen = roles == role
        if np.isfinite(cube[chosen]).any():
            even[chosen] = np.nanmean(cube[chosen])
    return np.where(np.isfinite(cube), even, np.nan)
