"""Synthetic jobs with known truth: dp x pp grids with heavy-tailed noise, shared work per micro-batch, heavy stages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analytics.window import Topology, Window


def job(
    *,
    dp: int = 4,
    pp: int = 2,
    n_steps: int = 30,
    n_micro: int = 8,
    noise: float = 0.02,
    work: float = 0.0,
    stages: tuple[float, ...] | None = None,
    slow: dict[int, float] | None = None,
    ranks_per_node: int = 0,
    seed: int = 0,
) -> Window:
    """Rank r stands at dp r // pp, pp r % pp; `work` is the sigma of the log of work per (replica, step, micro-
    batch).
    """
    rng = np.random.default_rng(seed)
    rank = np.arange(dp * pp)
    shared = np.exp(work * rng.standard_normal((dp, n_steps, n_micro)))[rank // pp]
    level = np.array(stages or (1.0,) * pp)[rank % pp][:, None, None]

    def times(seconds: float) -> NDArray[np.float64]:
        scatter = np.exp(noise * rng.standard_t(4, (dp * pp, n_steps, n_micro)))
        return np.asarray(seconds * level * shared * scatter)

    seconds = {"forward": times(0.1), "backward": times(0.2)}
    for index, factor in (slow or {}).items():
        for phase in seconds:
            seconds[phase][index] *= factor
    seconds["optimizer"] = 0.01 * np.exp(noise * rng.standard_t(4, (dp * pp, n_steps, 1)))
    nodes = tuple(f"node-{r // ranks_per_node}" if ranks_per_node else "" for r in rank)
    topology = Topology(rank, nodes, {"dp": rank // pp, "pp": rank % pp})
    return Window("run", topology, np.arange(n_steps), seconds, np.zeros(n_steps, dtype=np.int64))
