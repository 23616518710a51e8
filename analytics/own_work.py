"""Each rank's own work against that of its peers, with what varies by micro-batch taken out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.ratios import medians_of_others, peer_log_ratios
from analytics.robust import median_along, sigma_along
from analytics.window import UNKNOWN, Topology, Window

Floats = NDArray[np.float64]

COMPUTE = ("forward", "backward")
# Waits never count as own work: collectives and whole steps are left out, so that a victim cannot look slow.
OWN_PHASES = (*COMPUTE, "loader", "optimizer")
# Below this correlation between the stages of one replica, work is taken not to vary by micro-batch. SE trace: 0.997,
# AR: 0.02.
MIN_SHARED_WORK = 0.5
MIN_PAIRED_SHARE = 0.5  # micro-batches are paired when this share of the table is filled


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Log ratios to the peers, (n_ranks, n_steps), by phase; "compute" is forward and backward together.

    `raw` is compute before the work shared with other stages was taken out; `shared_work` is the correlation between
    the stages of one replica, 0 where there is none to compare with; `variation` is the sigma of a rank's log ratio
    from one micro-batch (or step) to the next.
    """

    ratios: dict[str, Floats]
    raw: Floats
    shared_work: float
    variation: float


def own_work_of(window: Window, roles: NDArray[np.int64], excluded: NDArray[np.bool_] | None = None) -> OwnWork:
    """Return every rank's own work against its peers.

    Args:
        window: phases (n, m, k); compute is paired by micro-batch where those are told.
        roles: (n,) from `roles_of`.
        excluded: (n,) ranks that are nobody's peers and bear no witness on work.

    Cost: O(n m k log n) time, O(n m k) memory.
    """
    cube = compute_cube(window)
    flat = peer_log_ratios(cube.reshape(len(cube), -1), roles, excluded)
    shared, work = shared_work_of(flat, window.topology, excluded)
    raw = median_along(flat.reshape(cube.shape), 2)
    ratios = {"compute": raw if work is None else _without(flat, work, cube.shape)}
    for phase in OWN_PHASES:
        if phase not in window.seconds:
            continue
        seconds = window.seconds[phase]
        if work is not None and phase in COMPUTE and seconds.shape == cube.shape:
            ratios[phase] = _without(peer_log_ratios(seconds.reshape(len(cube), -1), roles, excluded), work, cube.shape)
        else:
            ratios[phase] = peer_log_ratios(window.per_step(phase), roles, excluded)
    return OwnWork(ratios, raw, shared, _typical(sigma_along(flat, 1)))


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


def shared_work_of(
    flat: Floats, topology: Topology, excluded: NDArray[np.bool_] | None = None
) -> tuple[float, Floats | None]:
    """Return how alike the stages of a replica vary, and the part of each log ratio that they share.

    Args:
        flat: (n, c) log ratios to peers, a column per micro-batch.

    Returns:
        The correlation over ranks and columns (0 where there are no other stages), and (n, c) to subtract, NaN where
        unknown; None where work is not shared.
    """
    witnesses = flat if excluded is None else np.where(excluded[:, None], np.nan, flat)
    mates = _mates_median(witnesses, topology)
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


def _typical(values: Floats) -> float:
    seen = values[np.isfinite(values)]
    return float(np.median(seen)) if len(seen) else 0.0


def _centred(values: Floats) -> Floats:
    return np.asarray(values - median_along(values, 1)[:, None])


def _mates_median(witnesses: Floats, topology: Topology) -> Floats | None:
    """Return the median log ratio (n, c) of the other stages of each rank's replica, None where there are no
    witnesses.
    """
    stage = topology.coordinates.get("pp")
    others = [values for name, values in sorted(topology.coordinates.items()) if name != "pp"]
    if stage is None or not others or any((values == UNKNOWN).any() for values in (stage, *others)):
        return None
    _, replica, sizes = np.unique(np.stack(others, axis=1), axis=0, return_inverse=True, return_counts=True)
    n_stages = int(sizes[0])
    if n_stages < 2 or (sizes != n_stages).any() or _share_nodes(topology, replica.reshape(-1), stage):
        return None
    order = np.lexsort((stage, replica.reshape(-1)))
    by_replica = witnesses[order].reshape(-1, n_stages, witnesses.shape[1]).swapaxes(0, 1).reshape(n_stages, -1)
    others_median = medians_of_others(by_replica)
    if not np.isfinite(by_replica).all():  # who bears no witness still hears the others
        others_median = np.where(np.isfinite(by_replica), others_median, median_along(by_replica, 0)[None])
    medians = others_median.reshape(n_stages, -1, witnesses.shape[1]).swapaxes(0, 1)
    result = np.empty_like(witnesses)
    result[order] = medians.reshape(witnesses.shape)
    return result


def _share_nodes(topology: Topology, replica: NDArray[np.int64], stage: NDArray[np.int64]) -> bool:
    """Return whether stages of one replica stand on one node: then they are slow together, and excuse each other
    wrongly.
    """
    places: dict[tuple[str, int], int] = {}
    for name, group, level in zip(topology.nodes, replica.tolist(), stage.tolist(), strict=True):
        if name and places.setdefault((name, group), level) != level:
            return True
    return False
