"""Each rank's own work against that of its peers, with what varies by micro-batch taken out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.ratios import medians_of_others, peer_log_ratios
from analytics.robust import median_along
from analytics.window import UNKNOWN, Topology, Window

Floats = NDArray[np.float64]

COMPUTE = ("forward", "backward")
# Waits never count as own work: collectives and whole steps are left out, so that a victim cannot look slow.
OWN_PHASES = (*COMPUTE, "loader", "optimizer")
# Below this correlation between the stages of one replica, work is taken not to vary by micro-batch. SE trace: 0.997, AR: 0.02.
MIN_SHARED_WORK = 0.5
MIN_PAIRED_SHARE = 0.5  # micro-batches are paired when this share of the table is filled


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Log ratios to the peers, (n_ranks, n_steps), by phase; "compute" is forward and backward together.

    `raw` is compute before the work shared with other stages was taken out; `shared_work` is the correlation between
    the stages of one replica, 0 where there is none to compare with.
    """

    ratios: dict[str, Floats]
    raw: Floats
    shared_work: float


def own_work_of(window: Window, roles: NDArray[np.int64]) -> OwnWork:
    """Return every rank's own work against its peers.

    Args:
        window: phases (n, m, k); compute is paired by micro-batch where those are told.
        roles: (n,) from `roles_of`.

    Cost: O(n m k log n) time, O(n m k) memory.
    """
    cube = compute_cube(window)
    flat = peer_log_ratios(cube.reshape(len(cube), -1), roles)
    shared, work = shared_work_of(flat, window.topology)
    raw = median_along(flat.reshape(cube.shape), 2)
    ratios = {"compute": raw if work is None else _without(flat, work, cube.shape)}
    for phase in OWN_PHASES:
        if phase not in window.seconds:
            continue
        seconds = window.seconds[phase]
        if work is not None and phase in COMPUTE and seconds.shape == cube.shape:
            ratios[phase] = _without(peer_log_ratios(seconds.reshape(len(cube), -1), roles), work, cube.shape)
        else:
            ratios[phase] = peer_log_ratios(window.per_step(phase), roles)
    return OwnWork(ratios, raw, shared)


def _without(flat: Floats, work: Floats, shape: tuple[int, ...]) -> Floats:
    """Return log ratios (n, m) with the shared work taken out, the median over micro-batches."""
    return median_along(np.where(np.isfinite(work), flat - work, flat).reshape(shape), 2)


def compute_cube(window: Window) -> Floats:
    """Return seconds (n, m, k) of forward and backward together, by micro-batch where both tell it, else k = 1."""
    parts = [window.seconds[phase] for phase in COMPUTE if phase in window.seconds]
    if len(parts) == len(COMPUTE) and parts[0].shape == parts[1].shape and parts[0].shape[2] > 1:
        both = parts[0] + parts[1]
        per_step_seen = np.isfinite(window.per_step(*COMPUTE))
        if np.isfinite(both).any(axis=2).sum() >= MIN_PAIRED_SHARE * per_step_seen.sum():
            return both
    return window.per_step(*COMPUTE)[:, :, None]


def shared_work_of(flat: Floats, topology: Topology) -> tuple[float, Floats | None]:
    """Return how alike the stages of a replica vary, and the part of each log ratio that they share.

    Args:
        flat: (n, c) log ratios to peers, a column per micro-batch.

    Returns:
        The correlation over ranks and columns (0 where there are no other stages), and (n, c) to subtract, NaN where
        unknown; None where work is not shared.
    """
    mates = _mates_median(flat, topology)
    if mates is None:
        return 0.0, None
    own, other = _centred(flat), _centred(mates)
    both = np.isfinite(own) & np.isfinite(other)
    if not both.any():
        return 0.0, None
    own, other = np.where(both, own, 0.0), np.where(both, other, 0.0)
    product, own_power, power = (own * other).sum(), (own * own).sum(), (other * other).sum()
    if power <= 0 or own_power <= 0:
        return 0.0, None
    correlation = float(product / np.sqrt(own_power * power))
    if correlation < MIN_SHARED_WORK:
        return correlation, None
    return correlation, np.asarray(min(float(product / power), 1.0) * mates)


def _centred(values: Floats) -> Floats:
    return np.asarray(values - median_along(values, 1)[:, None])


def _mates_median(flat: Floats, topology: Topology) -> Floats | None:
    """Return the median log ratio (n, c) of the other stages of each rank's replica, None where there are no witnesses."""
    stage = topology.coordinates.get("pp")
    others = [values for name, values in sorted(topology.coordinates.items()) if name != "pp"]
    if stage is None or not others or any((values == UNKNOWN).any() for values in (stage, *others)):
        return None
    _, replica, sizes = np.unique(np.stack(others, axis=1), axis=0, return_inverse=True, return_counts=True)
    n_stages = int(sizes[0])
    if n_stages < 2 or (sizes != n_stages).any() or _share_nodes(topology, replica.reshape(-1), stage):
        return None
    order = np.lexsort((stage, replica.reshape(-1)))
    by_replica = flat[order].reshape(-1, n_stages, flat.shape[1]).swapaxes(0, 1).reshape(n_stages, -1)
    medians = medians_of_others(by_replica).reshape(n_stages, -1, flat.shape[1]).swapaxes(0, 1)
    result = np.empty_like(flat)
    result[order] = medians.reshape(flat.shape)
    return result


def _share_nodes(topology: Topology, replica: NDArray[np.int64], stage: NDArray[np.int64]) -> bool:
    """Return whether stages of one replica stand on one node: then they are slow together, and excuse each other wrongly."""
    places: dict[tuple[str, int], int] = {}
    for name, group, level in zip(topology.nodes, replica.tolist(), stage.tolist(), strict=True):
        if name and places.setdefault((name, group), level) != level:
            return True
    return False
