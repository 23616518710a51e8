"""What a window of steps would have taken had some ranks been healthy, when only seconds per phase are known.

Replicas synchronise once a step; within one, stages run one-forward-one-backward (1F1B) over the micro-batches. What
the
model does not explain (communication, launch gaps) is kept as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from analytics.own_work import COMPUTE, OWN_PHASES
from analytics.robust import median_along
from analytics.window import UNKNOWN, Topology, Window

Floats = NDArray[np.float64]


def step_seconds_modelled(window: Window) -> Floats:
    """Return modelled step times (m,) in seconds: the slowest replica, the slowest optimizer and input wait; NaN
    unseen.
    """
    return _compute_seconds(window) + _slowest(window, "optimizer") + _slowest(window, "loader")


def slowdown_of(window: Window, factors: Floats) -> float:
    """Return the window's time over its time with each rank's own work divided by `factors` (n, m), >= 1."""
    scale = 1.0 / factors[:, :, None]
    return slowdown_against(
        window, {phase: cube * scale for phase, cube in window.seconds.items() if phase in OWN_PHASES}
    )


def slowdown_against(window: Window, seconds: Mapping[str, Floats]) -> float:
    """Return the window's time over its time with the phases `seconds` (n, m, k) in place of its own, >= 1."""
    as_is = step_seconds_modelled(window)
    healed = step_seconds_modelled(replace(window, seconds={**window.seconds, **seconds}))
    seen = np.isfinite(as_is) & np.isfinite(healed)
    if not seen.any():
        return 1.0
    unexplained = np.maximum(observed_step_seconds(window) - as_is, 0.0)
    rest = np.where(np.isfinite(unexplained), unexplained, 0.0)
    gone, left = float((as_is + rest)[seen].sum()), float((healed + rest)[seen].sum())
    return max(gone / left, 1.0) if left > 0 else 1.0


def observed_step_seconds(window: Window) -> Floats:
    """Return the measured step times (m,): the median over ranks, which all wait for each other; NaN where unknown."""
    if "step" not in window.seconds:
        return np.full(len(window.steps), np.nan)
    return median_along(window.per_step("step"), 0)


def wasted_accelerator_hours(window: Window, slowdown: float, first: int) -> float:
    """Return the accelerator-hours lost since column `first`: ranks x measured time x (1 - 1 / slowdown)."""
    measured = observed_step_seconds(window)
    modelled = step_seconds_modelled(window)
    seconds = np.where(np.isfinite(measured), measured, modelled)[first:]
    return float(np.nansum(seconds)) * len(window.topology.ranks) * (1 - 1 / slowdown) / 3600


def _slowest(window: Window, phase: str) -> Floats:
    if phase not in window.seconds:
        return np.zeros(len(window.steps))
    seconds = window.per_step(phase)
    return np.asarray(np.where(np.isnan(seconds), 0.0, seconds).max(axis=0))


def _compute_seconds(window: Window) -> Floats:
    order = replica_order(window.topology)
    cubes = [window.seconds[phase] for phase in COMPUTE if phase in window.seconds]
    paired = len(cubes) == len(COMPUTE) and cubes[0].shape == cubes[1].shape and cubes[0].shape[2] > 1
    if not paired or order is None or len(order) < 2:
        seconds = window.per_step(*COMPUTE)
        seen = np.isfinite(seconds).any(axis=0)
        return np.where(seen, np.where(np.isnan(seconds), 0.0, seconds).max(axis=0), np.nan)
    forward, backward = (_filled(cube)[order] for cube in cubes)
    return np.asarray(one_forward_one_backward(forward, backward).max(axis=0))


def _filled(cube: Floats) -> Floats:
    """Return the cube with what was not seen taken as the column's median, so that a lost record frees no rank."""
    if not np.isnan(cube).any():
        return cube
    flat = cube.reshape(len(cube), -1)
    filled = np.where(np.isnan(flat), median_along(flat, 0)[None, :], flat)
    return np.where(np.isnan(filled), 0.0, filled).reshape(cube.shape)


def replica_order(topology: Topology) -> NDArray[np.int64] | None:
    """Return rank indices (n_stages, n_replicas), or None where the pipeline is not told or not regular."""
    stage = topology.coordinates.get("pp")
    if stage is None or (stage == UNKNOWN).any():
        return None
    others = [values for name, values in sorted(topology.coordinates.items()) if name != "pp"]
    keys = np.stack(others, axis=1) if others else np.zeros((len(stage), 1), dtype=np.int64)
    replicas, replica = np.unique(keys, axis=0, return_inverse=True)
    stages, place = np.unique(stage, return_inverse=True)  # stages may be numbered with holes
    n_stages = len(stages)
    places = np.unique(replica.reshape(-1) * n_stages + place.reshape(-1))
    if len(replicas) * n_stages != len(stage) or len(places) != len(stage):
        return None
    return np.lexsort((replica.reshape(-1), stage)).reshape(n_stages, -1).astype(np.int64)


def one_forward_one_backward(forward: Floats, backward: Floats) -> Floats:
    """Return when each replica's last backward ends, in seconds from the first forward.

    Args:
        forward, backward: (n_stages, n_replicas, n_steps, n_micro) seconds; transfers are taken to be free.

    Returns:
        (n_replicas, n_steps). Vectorised over replicas and steps; the loop is over stages and micro-batches.
        Source of the schedule: PipeDream-Flush, Narayanan et al. 2021, arXiv 2104.04473, section 2.2.
    """
    n_stages, _, _, n_micro = forward.shape
    queues = [_schedule(stage, n_stages, n_micro) for stage in range(n_stages)]
    free = np.zeros(forward.shape[:3])
    done: dict[tuple[str, int, int], Floats] = {}
    positions = [0] * n_stages
    remaining = sum(len(queue) for queue in queues)
    while remaining:
        for stage, queue in enumerate(queues):
            while positions[stage] < len(queue):
                kind, micro = queue[positions[stage]]
                needed = _needed(kind, stage, micro, n_stages)
                if needed is not None and needed not in done:
                    break
                start = free[stage] if needed is None else np.maximum(free[stage], done.pop(needed))
                work = forward if kind == "forward" else backward
                free[stage] = start + work[stage, :, :, micro]
                done[kind, stage, micro] = free[stage].copy()
                positions[stage] += 1
                remaining -= 1
    return np.asarray(free.max(axis=0))


def _needed(kind: str, stage: int, micro: int, n_stages: int) -> tuple[str, int, int] | None:
    if kind == "forward":
        return ("forward", stage - 1, micro) if stage else None
    return ("backward", stage + 1, micro) if stage < n_stages - 1 else None


def _schedule(stage: int, n_stages: int, n_micro: int) -> list[tuple[str, int]]:
    warm_up = min(n_stages - 1 - stage, n_micro)
    order = [("forward", micro) for micro in range(warm_up)]
    for micro in range(n_micro - warm_up):
        order += [("forward", warm_up + micro), ("backward", micro)]
    return order + [("backward", micro) for micro in range(n_micro - warm_up, n_micro)]
