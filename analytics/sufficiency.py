"""What in a window cannot be judged: silence about it would pass for health."""

from __future__ import annotations

import numpy as np

from analytics.detectors.slow_rank import MIN_STEPS, undecided_ranks
from analytics.own_work import COMPUTE
from analytics.roles import roles_of
from analytics.window import Window

RANKS_TOLD = 8  # names in one sentence; the rest are counted


def insufficient_evidence(window: Window) -> tuple[str, ...]:
    """Return one clause for each reason why detectors on timings say nothing of some or all ranks; empty if none."""
    ranks = window.topology.ranks
    reasons = []
    if len(window.steps) < MIN_STEPS:
        found = f"{len(window.steps)} step{'s' if len(window.steps) != 1 else ''}"
        reasons.append(f"{found}, and {MIN_STEPS} are needed to tell what persists from a burst")
    seen = np.isfinite(window.per_step(*COMPUTE)).any(axis=1)
    if not seen.all():
        reasons.append(f"{_names(ranks[~seen])} showed no compute")
    roles = roles_of(window.topology, window)
    alone = seen & (np.bincount(roles[seen], minlength=int(roles.max(initial=0)) + 1)[roles] < 2)
    if alone.any():
        reasons.append(f"{_names(ranks[alone])} had no peer of the same role to be compared with")
    halves = undecided_ranks(window)
    if halves:
        names = _names(np.array(sorted(halves)))
        reasons.append(f"{names} differ from as many peers of the same role: which of both are at fault cannot be told")
    return tuple(reasons)


def _names(ranks: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    listed = ", ".join(str(rank) for rank in ranks[:RANKS_TOLD].tolist())
    more = f" and {len(ranks) - RANKS_TOLD:,} more" if len(ranks) > RANKS_TOLD else ""
    return f"rank{'s' if len(ranks) != 1 else ''} {listed}{more}"
