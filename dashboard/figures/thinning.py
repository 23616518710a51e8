"""Fewer points for the same picture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tsdownsample import MinMaxLTTBDownsampler

MAX_POINTS = 1200


def thin(*series: NDArray[np.float64], most: int = MAX_POINTS) -> NDArray[np.int64]:
    """Return ascending indices of the points that keep the look of every series, first and last included.

    All series have one length.

    Peaks survive: MinMaxLTTB keeps extremes (Van Der Donckt et al., "MinMaxLTTB", arXiv:2305.00332). Absent and
    non-finite values count as 0; whoever draws them marks them apart.
    """
    length = len(series[0])
    if length <= most:
        return np.arange(length, dtype=np.int64)
    share = max(4, most // len(series))
    kept = [
        MinMaxLTTBDownsampler().downsample(  # type: ignore[no-untyped-call]  # the library annotates nothing
            np.nan_to_num(one, posinf=0, neginf=0), n_out=share
        )
        for one in series
    ]
    return np.unique(np.concatenate([*kept, [0, length - 1]])).astype(np.int64)
