from __future__ import annotations

import warnings

import numpy as np
import pytest

from analytics.ratios import medians_of_others, peer_log_ratios


@pytest.mark.parametrize("n_ranks", range(2, 9))
def test_medians_of_others_equal_a_naive_oracle_with_ties_and_gaps(n_ranks: int) -> None:
    rng = np.random.default_rng(n_ranks)
    values = rng.integers(1, 5, (n_ranks, 60)).astype(float)
    values[rng.random(values.shape) < 0.2] = np.nan

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        naive = np.stack([np.nanmedian(np.delete(values, i, axis=0), axis=0) for i in range(n_ranks)])

    np.testing.assert_array_equal(medians_of_others(values), np.where(np.isfinite(values), naive, np.nan))


def test_compares_only_within_a_role() -> None:
    seconds = np.array([[1.0], [1.0], [10.0], [20.0]])

    ratios = peer_log_ratios(seconds, np.array([0, 0, 1, 1]))

    np.testing.assert_allclose(ratios[:, 0], [0.0, 0.0, np.log(0.5), np.log(2.0)])


def test_a_rank_without_seen_peers_has_no_ratio() -> None:
    seconds = np.array([[1.0, 1.0], [np.nan, 0.0], [5.0, 5.0]])

    ratios = peer_log_ratios(seconds, np.array([0, 0, -1]))

    assert np.isnan(ratios).all()


def test_excluded_ranks_are_nobodys_peers_but_are_compared() -> None:
    seconds = np.array([[1.0], [2.0], [8.0]])

    ratios = peer_log_ratios(seconds, np.zeros(3, dtype=np.int64), np.array([False, False, True]))

    np.testing.assert_allclose(np.exp(ratios[:, 0]), [0.5, 2.0, 8 / 1.5])


def test_scaling_all_times_changes_nothing() -> None:
    seconds = np.random.default_rng(0).lognormal(size=(6, 9))
    roles = np.array([0, 0, 0, 1, 1, 1])

    np.testing.assert_allclose(peer_log_ratios(seconds * 7, roles), peer_log_ratios(seconds, roles), atol=1e-12)
