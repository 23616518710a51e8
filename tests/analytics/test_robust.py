from __future__ import annotations

import numpy as np
import pytest

from analytics.robust import correlated_steps, false_discovery, median_along, sigma_along


def with_gaps(shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    values[rng.random(shape) < 0.2] = np.nan
    return values


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(5, 6, 7), (2, 3, 4), (1, 9, 2)])
def test_median_leaves_out_what_was_not_seen(shape: tuple[int, int, int], axis: int) -> None:
    values = with_gaps(shape, seed=1)

    expected = np.apply_along_axis(
        lambda row: np.median(row[~np.isnan(row)]) if (~np.isnan(row)).any() else np.nan, axis, values
    )

    np.testing.assert_array_equal(median_along(values, axis), expected)


def test_median_of_nothing_is_unknown() -> None:
    assert np.isnan(median_along(np.zeros((2, 0)), 1)).all()
    assert np.isnan(median_along(np.full((2, 3), np.nan), 1)).all()


def test_sigma_is_that_of_a_normal_whatever_a_tenth_of_outliers_do() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, (1, 20_000))
    values[0, :2000] = 1e6

    assert sigma_along(values, 1)[0] == pytest.approx(2.0, rel=0.2)
    assert sigma_along(values[:, 2000:], 1)[0] == pytest.approx(2.0, rel=0.03)


def test_independent_steps_count_fully_and_correlated_ones_less() -> None:
    shocks = np.random.default_rng(0).standard_normal((50, 400))
    smooth = shocks.copy()
    for step in range(1, 400):
        smooth[:, step] = 0.7 * smooth[:, step - 1] + shocks[:, step]

    assert correlated_steps(shocks) == pytest.approx(1.0, abs=0.15)
    assert 2.0 < correlated_steps(smooth) < 6.0


def test_one_rank_that_changes_level_is_no_correlation() -> None:
    series = np.random.default_rng(0).standard_normal((9, 200))
    series[3, 100:] += 20

    assert correlated_steps(series) < 1.4


@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (0, 5)])
def test_too_little_to_tell_correlation_counts_as_none(shape: tuple[int, int]) -> None:
    assert correlated_steps(np.ones(shape)) == 1.0


def naive_false_discovery(p_values: np.ndarray, rate: float) -> list[bool]:
    known = sorted(p for p in p_values.tolist() if p == p)
    allowed = [p for place, p in enumerate(known, 1) if p <= rate * place / len(known)]
    return [p == p and bool(allowed) and p <= max(allowed) for p in p_values.tolist()]


@pytest.mark.parametrize("seed", range(20))
def test_false_discovery_control_equals_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p_values = rng.random(30) ** rng.integers(1, 8, 30)
    p_values[rng.random(30) < 0.1] = np.nan

    assert false_discovery(p_values, 0.1).tolist() == naive_false_discovery(p_values, 0.1)


def test_false_discovery_of_nothing_is_nothing() -> None:
    assert false_discovery(np.array([]), 0.1).tolist() == []
    assert false_discovery(np.array([np.nan, np.nan]), 0.1).tolist() == [False, False]
