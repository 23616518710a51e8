from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dashboard.figures.pooling import even_starts, group_rows, pool_worst


def naive_worst(values: np.ndarray, row_starts: np.ndarray, column_starts: np.ndarray) -> np.ndarray:
    rows = [*row_starts.tolist(), values.shape[0]]
    columns = [*column_starts.tolist(), values.shape[1]]
    pooled = np.full((len(rows) - 1, len(columns) - 1), np.nan)
    for i in range(len(rows) - 1):
        for j in range(len(columns) - 1):
            cell = values[rows[i] : rows[i + 1], columns[j] : columns[j + 1]].ravel()
            known = cell[~np.isnan(cell)]
            if len(known):
                pooled[i, j] = max(known, key=lambda x: (abs(x), x))
    return pooled


@settings(max_examples=60, deadline=None)
@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 9), st.integers(1, 9)),
        elements=st.one_of(st.just(np.nan), st.floats(-2, 2, width=16)),
    ),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_pooling_equals_a_naive_oracle(values: np.ndarray, most_rows: int, most_columns: int) -> None:
    row_starts = even_starts(values.shape[0], most_rows)
    column_starts = even_starts(values.shape[1], most_columns)

    pooled = pool_worst(values, row_starts, column_starts)

    np.testing.assert_array_equal(pooled, naive_worst(values, row_starts, column_starts))


def test_one_bad_rank_among_ten_thousand_stays_visible_wherever_it_stands() -> None:
    ranks = np.arange(10_000)
    nodes = tuple(f"node-{rank // 8:04d}" for rank in ranks)
    groups = group_rows(ranks, nodes, 360)
    columns = even_starts(300, 400)
    rng = np.random.default_rng(5)
    calm = rng.normal(0, 0.02, (10_000, 300)).astype(np.float32)

    for bad_rank in (0, 4_321, 9_999):
        values = calm.copy()
        values[bad_rank, 250] = np.log(1.4)
        pooled = pool_worst(values[groups.order], groups.starts, columns)
        row, column = np.unravel_index(np.nanargmax(pooled), pooled.shape)

        assert np.exp(pooled[row, column]) > 1.39
        assert column == 250
        members = groups.order[groups.starts[row] : [*groups.starts, 10_000][row + 1]]
        assert bad_rank in members


def test_a_fast_outlier_keeps_its_sign() -> None:
    values = np.array([[0.01, -0.5], [0.02, 0.03]])

    pooled = pool_worst(values, np.array([0]), np.array([0]))

    assert pooled.item() == -0.5


def test_few_ranks_get_a_row_each() -> None:
    groups = group_rows(np.arange(4), ("b", "b", "a", "a"), 360)

    assert groups.labels == ("rank 0 · b", "rank 1 · b", "rank 2 · a", "rank 3 · a")


def test_rows_are_whole_nodes_even_when_ranks_are_dealt_round_robin() -> None:
    ranks = np.arange(64)
    nodes = tuple(f"n{rank % 8}" for rank in ranks)

    groups = group_rows(ranks, nodes, 8)

    for row, start in enumerate(groups.starts):
        members = groups.order[start : start + 8]
        assert {nodes[i] for i in members} == {f"n{row}"}
    assert groups.labels[3] == "n3 · ranks 3-59"


def test_labels_are_unique_and_no_more_than_asked_for() -> None:
    ranks = np.arange(10_000)
    groups = group_rows(ranks, tuple(f"n{rank // 8}" for rank in ranks), 360)

    assert len(groups.labels) == len(set(groups.labels)) == len(groups.starts) == 360
