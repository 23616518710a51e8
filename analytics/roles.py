"""Roles: which ranks do the same work, so that their times may be compared."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from analytics.window import UNKNOWN, Topology, Window

ROLE_COORDINATES = ("pp", "ep")  # ranks that differ in these alone hold other layers or other experts
REPLICA_COORDINATES = ("dp", "tp", "cp")
# Stages of one pipeline whose levels differ by less than this are one role: comparing them does no harm that the
# effect size of slow_rank would not forgive. Own choice: log(1.1).
MIN_LEVEL_GAP = 0.095
GAP_TO_SPREAD = 3.0  # a gap between levels must exceed the widest spread within a level by this factor; own choice
MAX_LEVELS = 8  # a group smaller than 1/8 of the job is a slow node rather than a stage
MAX_RANKS_TO_CLUSTER = 4096  # single linkage is O(n^2); larger jobs are thinned by quantiles first


def roles_of(topology: Topology, window: Window | None = None) -> NDArray[np.int64]:
    """Return the role of each rank, numbered from 0 in ascending order of (pp, ep).

    Args:
        topology: pipeline and expert coordinates are believed where every rank has one.
        window: used when no coordinate tells: ranks fall into roles by which ops they show and by levels of
            compute time.

    Returns:
        (n_ranks,) int64, >= 0. All zeros when nothing is known.
    """
    n_ranks = len(topology.ranks)
    told = [topology.coordinates[name] for name in ROLE_COORDINATES if _is_told(topology, name)]
    if told:
        _, roles = np.unique(np.stack(told, axis=1), axis=0, return_inverse=True)
        return roles.reshape(-1).astype(np.int64)
    if window is None or _replicas_only(topology):
        return np.zeros(n_ranks, dtype=np.int64)
    return _inferred(window)


def _is_told(topology: Topology, name: str) -> bool:
    values = topology.coordinates.get(name)
    return values is not None and len(values) > 0 and bool((values != UNKNOWN).all())


def _replicas_only(topology: Topology) -> bool:
    """Return whether the known coordinates already tell every rank from every other, so that no stage can hide."""
    told = [topology.coordinates[name] for name in REPLICA_COORDINATES if _is_told(topology, name)]
    return bool(told) and len(np.unique(np.stack(told, axis=1), axis=0)) == len(topology.ranks)


def _inferred(window: Window) -> NDArray[np.int64]:
    signature = np.stack(
        [
            np.isfinite(window.seconds[phase]).any(axis=(1, 2))
            for phase in ("forward", "backward")
            if phase in window.seconds
        ]
        or [np.zeros(len(window.topology.ranks), dtype=bool)],
        axis=1,
    )
    _, kinds = np.unique(signature, axis=0, return_inverse=True)
    kinds = kinds.reshape(-1).astype(np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        level = np.log(_nanmedian(window.per_step("forward", "backward")))
    roles = np.zeros(len(kinds), dtype=np.int64)
    next_role = 0
    for kind in np.unique(kinds):
        members = np.flatnonzero(kinds == kind)
        levels = _levels(level[members])
        roles[members] = next_role + levels
        next_role += int(levels.max()) + 1
    return roles


def _nanmedian(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median over steps (n,), NaN where there is none."""
    result = np.full(len(seconds), np.nan)
    seen = np.isfinite(seconds).any(axis=1)
    result[seen] = np.nanmedian(seconds[seen], axis=1)
    return result


def _levels(level: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the pipeline level of each rank by its log compute time, all zeros unless the levels look like stages.

    Stages are far apart, tight, and of sizes in whole proportion; a slow rank or node is none of these, and must
    not become a role of its own, which would hide it.
    """
    one = np.zeros(len(level), dtype=np.int64)
    known = np.flatnonzero(np.isfinite(level))
    if len(known) < 4:
        return one
    values = level[known]
    if len(values) > MAX_RANKS_TO_CLUSTER:
        sampled = np.quantile(values, np.linspace(0, 1, MAX_RANKS_TO_CLUSTER))
    else:
        sampled = values
    # Imported when needed: it costs seconds, and most jobs tell their stages.
    from sklearn.cluster import AgglomerativeClustering

    model = AgglomerativeClustering(n_clusters=None, distance_threshold=MIN_LEVEL_GAP, linkage="single")
    labels = model.fit_predict(sampled[:, None])
    groups = sorted((np.sort(sampled[labels == label]) for label in np.unique(labels)), key=lambda g: float(g[0]))
    if not 2 <= len(groups) <= MAX_LEVELS:
        return one
    edges = [(low[-1] + high[0]) / 2 for low, high in pairwise(groups)]
    found = np.searchsorted(np.array(edges), values).astype(np.int64)
    if not _look_like_stages(groups, np.bincount(found)):
        return one
    one[known] = found
    return one


def _look_like_stages(groups: list[NDArray[np.float64]], sizes: NDArray[np.int64]) -> bool:
    smallest = int(sizes.min())
    if smallest < 2 or (sizes % smallest != 0).any() or smallest * MAX_LEVELS < int(sizes.sum()):
        return False
    spread = max(float(group[-1] - group[0]) for group in groups)
    gaps = [float(high[0] - low[-1]) for low, high in pairwise(groups)]
    return min(gaps) > GAP_TO_SPREAD * spread
