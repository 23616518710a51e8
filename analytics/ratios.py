"""Ratios to peers: the one comparison that every detector and the heatmap share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analytics.robust import median_along

Floats = NDArray[np.float64]


def peer_log_ratios(seconds: Floats, roles: NDArray[np.int64], excluded: NDArray[np.bool_] | None = None) -> Floats:
    """Return the log of each rank's time to the median of the other ranks of its role, step by step.

    Args:
        seconds: (n_ranks, n_columns), a column is one step, or one micro-batch of one step; NaN or <= 0 = not seen.
        roles: (n_ranks,) role of each rank; a negative role has no peers.
        excluded: (n_ranks,) ranks that are nobody's peers, as they are known to be slow; they are compared all the
        same.

    Returns:
        (n_ranks, n_columns), 0 = as its peers, log(1.2) = 20 % slower than they. NaN where the rank or all its
        peers were not seen. The rank itself is left out of the median: with two peers it would otherwise halve its
        own excess, with three it
        could be its own yardstick.

    Cost: O(n log n) time a column, O(n) memory.
    """
    seconds = np.asarray(seconds, dtype=np.float64)
    clean = np.where(np.isfinite(seconds) & (seconds > 0), seconds, np.nan)
    result = np.full(clean.shape, np.nan)
    for role in np.unique(roles[roles >= 0]):
        members = np.flatnonzero(roles == role)
        if len(members) < 2:
            continue
        own = clean[members]
        left_out = None if excluded is None else excluded[members]
        if left_out is None or not left_out.any():
            peers = medians_of_others(own)
        else:
            peers = np.empty_like(own)
            peers[~left_out] = medians_of_others(own[~left_out])
            peers[left_out] = median_along(own[~left_out], 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            result[members] = np.log(own / peers)
    return result


def medians_of_others(values: Floats) -> Floats:
    """Return, for each element, the median of the other elements of its column.

    Args:
        values: (n, m); NaN = absent.

    Returns:
        (n, m); NaN where the element itself or every other element is absent.

    One sort serves all n medians: taking an element out moves the middle by at most one place, and whether it
    moves up or down depends only on which side of the middle the element lies.
    """
    if len(values) < 2:
        return np.full(values.shape, np.nan)
    ordered = np.sort(values, axis=0)  # absent ones go last
    present = np.isfinite(values)
    count = present.sum(axis=0)
    half = count // 2
    columns = np.arange(values.shape[1])

    def at(index: NDArray[np.intp]) -> Floats:
        return np.asarray(ordered[np.clip(index, 0, values.shape[0] - 1), columns], dtype=np.float64)

    below, middle, above = at(half - 1), at(half), at(half + 1)
    # An odd count leaves an even number of others: the mean of their two middle ones.
    odd = np.where(
        values < middle, (middle + above) / 2, np.where(values > middle, (below + middle) / 2, (below + above) / 2)
    )
    even = np.where(values <= below, middle, below)
    return np.where(present & (count >= 2), np.where(count % 2 == 1, odd, even), np.nan)
