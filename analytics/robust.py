"""Robust statistics along an axis, NaN = not seen. Sorting beats numpy's nanmedian by far on many short rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAD_TO_SIGMA = 1.4826  # of a normal distribution
MEDIAN_TO_MEAN_SE = 1.2533  # sqrt(pi / 2): standard error of a median over that of a mean, normal distribution
MAX_LAG = 6  # steps over which noise is taken to be correlated ("a few"); longer runs count as slow


def median_along(values: Floats, axis: int) -> Floats:
    """Return the median along `axis`, leaving out NaN; NaN where nothing was seen."""
    moved = np.moveaxis(values, axis, -1)
    if moved.shape[-1] == 0:
        return np.full(moved.shape[:-1], np.nan)
    if moved.shape[-1] == 1:
        return moved[..., 0]
    ordered = np.sort(moved, axis=-1)
    count = np.isfinite(ordered).sum(axis=-1)
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    high = np.minimum(high, ordered.shape[-1] - 1)
    picked = [np.take_along_axis(ordered, index[..., None], axis=-1)[..., 0] for index in (low, high)]
    return np.where(count > 0, (picked[0] + picked[1]) / 2, np.nan)


def sigma_along(values: Floats, axis: int) -> Floats:
    """Return a robust standard deviation along `axis`: the median absolute deviation, scaled to a normal's sigma."""
    centre = np.expand_dims(median_along(values, axis), axis)
    return MAD_TO_SIGMA * median_along(np.abs(values - centre), axis)


def correlated_steps(series: Floats) -> float:
    """Return how many steps of noise are worth one independent step, >= 1.

    Args:
        series: (n_ranks, n_steps), noise about any level.

    The signs about each rank's median are correlated lag by lag, which is what the variance of a median depends on; the
    median over ranks keeps one rank that changes level from passing for noise.
    Source: integrated autocorrelation time, 1 + 2 sum rho_k (1 - k/m), cut at the first lag that is not positive.
    """
    n_steps = series.shape[1]
    signs = np.sign(series - median_along(series, 1)[:, None])
    total = 1.0
    for lag in range(1, min(MAX_LAG, n_steps - 2) + 1):
        product = signs[:, lag:] * signs[:, :-lag]
        seen = np.isfinite(product)
        counts = seen.sum(axis=1)
        usable = counts > 0
        if not usable.any():
            break
        rho = float(np.median(np.where(seen, product, 0.0)[usable].sum(axis=1) / counts[usable]))
        if rho <= 0:
            break
        total += 2 * rho * (1 - lag / n_steps)
    return total


def false_discovery(p_values: Floats, rate: float) -> NDArray[np.bool_]:
    """Return which hypotheses hold when at most the share `rate` of those named may be false.

    Source: Benjamini and Hochberg 1995, doi:10.1111/j.2517-6161.1995.tb02031.x. NaN never holds, and is not counted.
    """
    known = np.flatnonzero(np.isfinite(p_values))
    result = np.zeros(len(p_values), dtype=bool)
    order = known[np.argsort(p_values[known])]
    below = p_values[order] <= rate * np.arange(1, len(order) + 1) / max(len(order), 1)
    if below.any():
        result[order[: int(np.flatnonzero(below)[-1]) + 1]] = True
    return result
