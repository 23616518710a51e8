"""Which ranks are furthest above their peers in a window: the order of the culprit table and of the heatmap's top."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.window import UNKNOWN, Topology

# Medians over this many steps stand out from noise that single steps of a shared machine have (30-50 % measured on two
# cores with four ranks; a median of ten scatters about a third of that).
BLOCK_STEPS = 10
NOW_STEPS = 20
SLOW_RATIO = 1.2  # a step counts as slow from here; the effect that slow_rank reports is of this size


@dataclass(frozen=True, slots=True)
class Standing:
    """How one rank stands to its peers in the window.

    Ratios are of its compute time to the median of the others of its role.
    """

    rank: int
    node: str
    coordinates: dict[str, int]
    ratio_now: float
    ratio_peak: float
    steps_slow: int
    steps_seen: int


def block_medians(log_ratios: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return medians (n, ceil(m / BLOCK_STEPS)) of (n, m); NaN counts as 0: what is absent accuses nobody."""
    n, m = log_ratios.shape
    blocks = -(-m // BLOCK_STEPS)
    padded = np.zeros((n, blocks * BLOCK_STEPS))
    # the newest steps fill the last block; the oldest block is the short one
    padded[:, blocks * BLOCK_STEPS - m :] = np.nan_to_num(log_ratios, nan=0.0)
    return np.asarray(np.median(padded.reshape(n, blocks, BLOCK_STEPS), axis=2), dtype=np.float64)


def excess(log_ratios: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return each rank's excess (n,): its positive block medians summed, in log-ratio times blocks; higher = worse."""
    if log_ratios.shape[1] == 0:
        return np.zeros(len(log_ratios))
    return np.asarray(np.clip(block_medians(log_ratios), 0, None).sum(axis=1), dtype=np.float64)


def standings(topology: Topology, log_ratios: NDArray[np.floating], *, most: int) -> list[Standing]:
    """Return the `most` ranks of the highest excess, worst first.

    Args:
        topology: n ranks.
        log_ratios: (n, m), ascending steps; NaN = unknown.
        most: how many to return.
    """
    if log_ratios.shape[1] == 0:
        return []
    order = np.argsort(-excess(log_ratios), kind="stable")[:most]
    chosen = log_ratios[order]
    with np.errstate(invalid="ignore"):
        slow = (chosen > np.log(SLOW_RATIO)).sum(axis=1)
    peaks = np.exp(block_medians(chosen).max(axis=1))
    return [
        Standing(
            rank=int(topology.ranks[index]),
            node=topology.nodes[index],
            coordinates={k: int(v[index]) for k, v in topology.coordinates.items() if v[index] != UNKNOWN},
            ratio_now=_ratio_now(log_ratios[index]),
            ratio_peak=float(peaks[place]),
            steps_slow=int(slow[place]),
            steps_seen=int(np.isfinite(log_ratios[index]).sum()),
        )
        for place, index in enumerate(order)
    ]


def _ratio_now(row: NDArray[np.floating]) -> float:
    newest = row[np.isfinite(row)][-NOW_STEPS:]
    return float(np.exp(np.median(newest))) if len(newest) else float("nan")
