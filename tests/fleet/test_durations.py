from __future__ import annotations

import numpy as np

from fleet.durations import DurationModel
from fleet.topology import Topology


def test_noise_has_a_narrow_body_and_a_tail_of_a_few_per_cent() -> None:
    model = DurationModel(Topology(dp=64, pp=1, tp=8), 8, 1.0, seed=3)
    steps = np.stack([model.draw().compute for _ in range(20)])

    ratio = steps / np.median(steps, axis=0, keepdims=True)

    body = np.subtract(*np.quantile(np.log(ratio), [0.75, 0.25])) / 1.349
    assert 0.017 < body < 0.025
    assert 0.005 < np.mean(ratio > 1.08) < 0.02  # a normal body alone would give 0.00003
    assert np.mean(ratio < 0.92) < 0.001


def test_lasting_offsets_of_ranks_are_about_one_per_cent() -> None:
    model = DurationModel(Topology(dp=64, pp=1, tp=8), 4, 1.0, seed=3)

    level = np.mean([np.median(model.draw().compute[0, :4], axis=0) for _ in range(50)], axis=0)

    assert 0.008 < np.std(np.log(level)) < 0.013


def test_stages_differ_mildly() -> None:
    model = DurationModel(Topology(dp=32, pp=4, tp=8), 4, 1.0, seed=3)

    level = np.median(np.stack([model.draw().compute for _ in range(10)]), axis=(0, 2, 3, 4))

    assert 1.03 < level[3] / level[0] < 1.06
