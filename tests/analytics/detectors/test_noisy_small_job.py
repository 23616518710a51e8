"""Four ranks that share two cores: forward's single-step ratios scatter by 35 %, its medians over 50 steps by 8 %.

That is somewhat worse than the job it stands for (30-50 % and 5 %).
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from analytics.detectors import LIVE_WINDOW_STEPS
from analytics.detectors.slow_rank import SlowRank
from analytics.window import Topology, Window

SLOW_FROM = 100
N_STEPS = 300
CORRELATION = 0.3  # of neighbouring steps


def run(seed: int, ratio: float) -> dict[str, NDArray[np.float64]]:
    """Return forward and backward seconds (4, 300), heavy-tailed and autocorrelated.

    Rank 2 computes `ratio` times as long in steps 100..200; as in the real run that this stands for, by extra work in
    forward, which is a third of the compute.
    """
    rng = np.random.default_rng(seed)
    phases = {"forward": 0.15 * noise(rng), "backward": 0.3 * noise(rng)}
    phases["forward"][2, SLOW_FROM:200] *= 1 + 3 * (ratio - 1)
    return phases


def noise(rng: np.random.Generator) -> NDArray[np.float64]:
    shocks = rng.standard_t(5, (4, N_STEPS)) * 0.25
    log = shocks.copy()
    for step in range(1, N_STEPS):
        log[:, step] = CORRELATION * log[:, step - 1] + np.sqrt(1 - CORRELATION**2) * shocks[:, step]
    return np.asarray(np.exp(log))


def first_names(seconds: dict[str, NDArray[np.float64]], steps: range) -> tuple[int, ...] | None:
    topology = Topology(np.arange(4), ("host",) * 4, {"dp": np.arange(4)})
    for end in steps:
        begin = max(0, end - LIVE_WINDOW_STEPS)
        phases = {phase: values[:, begin:end, None] for phase, values in seconds.items()}
        window = Window("run", topology, np.arange(begin, end), phases, np.zeros(end - begin, dtype=np.int64))
        findings = SlowRank().detect(window)
        if findings:
            return findings[0].ranks
    return None


def counts(seeds: range) -> tuple[int, int]:
    alarms = sum(first_names(run(seed, 1.0), range(10, N_STEPS + 1, 5)) is not None for seed in seeds)
    found = sum(first_names(run(seed, 1.4), range(SLOW_FROM + 5, SLOW_FROM + 41, 5)) == (2,) for seed in seeds)
    return alarms, found


def test_names_the_rank_within_40_steps_and_nobody_in_a_healthy_run() -> None:
    assert counts(range(5)) == (0, 5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_holds_over_200_seeds() -> None:
    alarms, found = counts(range(200))

    assert alarms == 0
    assert found >= 195  # 197 when written; the rest are named a few steps later
