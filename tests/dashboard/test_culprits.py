from __future__ import annotations

import numpy as np

from analytics.window import Topology
from dashboard.culprits import block_medians, excess, standings

TOPOLOGY = Topology(
    ranks=np.arange(16), nodes=tuple(f"n{rank // 4}" for rank in range(16)), coordinates={"dp": np.arange(16)}
)


def noisy_ratios(scatter: float = 0.3) -> np.ndarray:
    return np.random.default_rng(1).normal(0, scatter, (16, 300))


def test_a_slow_rank_leads_in_spite_of_thirty_per_cent_noise() -> None:
    ratios = noisy_ratios()
    ratios[11, 200:] += np.log(1.5)

    found = standings(TOPOLOGY, ratios, most=3)

    assert [found[0].rank, found[0].node, found[0].coordinates] == [11, "n2", {"dp": 11}]
    assert 1.3 < found[0].ratio_now < 1.7


def test_a_rank_that_healed_still_ranks_high_but_its_ratio_now_is_calm() -> None:
    ratios = noisy_ratios(0.02)
    ratios[5, 100:150] += np.log(2)

    worst = standings(TOPOLOGY, ratios, most=1)[0]

    assert worst.rank == 5
    assert worst.steps_slow == 50
    assert 0.9 < worst.ratio_now < 1.1
    assert 1.9 < worst.ratio_peak < 2.1


def test_an_absent_rank_accuses_nobody() -> None:
    ratios = np.full((16, 40), np.nan)
    ratios[3] = 0.0

    assert excess(ratios).tolist() == [0.0] * 16
    unknown = {one.rank for one in standings(TOPOLOGY, ratios, most=16) if np.isnan(one.ratio_now)}
    assert unknown == set(range(16)) - {3}


def test_the_newest_block_is_whole_and_the_oldest_short() -> None:
    ratios = np.concatenate([np.full((1, 5), 9.0), np.full((1, 10), 1.0)], axis=1)

    assert block_medians(ratios).tolist() == [[4.5, 1.0]]


def test_no_steps_yet_give_no_standings() -> None:
    assert standings(TOPOLOGY, np.zeros((16, 0)), most=5) == []
