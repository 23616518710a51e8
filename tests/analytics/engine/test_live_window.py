"""Rolling a window forward equals building it anew from all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.live_window import MICROBATCHES_KEPT, LiveWindow
from analytics.window import Topology, Window

TOPOLOGY = Topology(ranks=np.array([0, 1, 5]), nodes=("a", "a", "b"))

Row = tuple[int, int, int, str]
ROWS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 5, 9]), st.integers(0, 40), st.integers(0, 3), st.sampled_from(["forward", "backward"])
    ),
    max_size=80,
    unique=True,
)


def table(rows: list[Row]) -> pa.Table:
    return pa.table(
        {
            "rank": pa.array([row[0] for row in rows], pa.uint32()),
            "step": pa.array([row[1] for row in rows], pa.uint32()),
            "micro": pa.array([row[2] for row in rows], pa.uint32()),
            "phase": pa.array([row[3] for row in rows], pa.string()),
            "seconds": pa.array([row[0] + row[1] / 100 + row[2] / 10 for row in rows], pa.float64()),
            "start_ns": pa.array([1 + row[1] * 1000 + row[0] for row in rows], pa.int64()),
        }
    )


@given(ROWS, st.integers(1, 7))
@settings(max_examples=200, deadline=None)
def test_rows_in_any_order_give_the_window_of_all_of_them(rows: list[Row], parts: int) -> None:
    live = LiveWindow("r", TOPOLOGY, steps_kept=50)

    for part in range(parts):
        live.merge(table(rows[part::parts]))

    got, expected = live.window(), Window.from_phases("r", TOPOLOGY, table(rows))
    np.testing.assert_array_equal(got.steps, expected.steps)
    np.testing.assert_array_equal(got.step_unix_ns, expected.step_unix_ns)
    for phase in ("forward", "backward"):
        np.testing.assert_array_equal(got.per_step(phase), expected.per_step(phase))


@given(ROWS.map(lambda rows: sorted(rows, key=lambda row: row[1])), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_only_the_newest_steps_are_kept(rows: list[Row], kept: int) -> None:
    live = LiveWindow("r", TOPOLOGY, steps_kept=kept)

    for row in rows:
        live.merge(table([row]))

    got, everything = live.window(), Window.from_phases("r", TOPOLOGY, table(rows))
    np.testing.assert_array_equal(got.steps, everything.steps[-kept:])
    np.testing.assert_array_equal(got.per_step("forward"), everything.per_step("forward")[:, -kept:])


def test_detectors_cannot_write_into_the_window() -> None:
    live = LiveWindow("r", TOPOLOGY, steps_kept=5)
    live.merge(table([(0, 1, 0, "forward")]))

    with pytest.raises(ValueError, match="read-only"):
        live.window().seconds["forward"][0, 0, 0] = 1.0


def test_ranks_that_stay_keep_their_seconds_when_others_come_and_go() -> None:
    live = LiveWindow("r", TOPOLOGY, steps_kept=5)
    live.merge(table([(0, 1, 0, "forward"), (5, 1, 0, "forward")]))

    live.follow(Topology(ranks=np.array([3, 5]), nodes=("c", "b")))

    np.testing.assert_allclose(live.window().per_step("forward"), [[np.nan], [5.01]])


def test_more_microbatches_than_are_kept_are_summed_per_step() -> None:
    live = LiveWindow("r", TOPOLOGY, steps_kept=5)

    live.merge(table([(0, 0, 0, "forward"), (0, 0, MICROBATCHES_KEPT, "forward"), (1, 0, 2**24 - 1, "forward")]))

    assert live.window().seconds["forward"].shape == (3, 1, 1)
    np.testing.assert_allclose(live.window().per_step("forward")[0, 0], 0.0 + MICROBATCHES_KEPT / 10)
