from __future__ import annotations

import numpy as np
import pyarrow as pa

from dashboard.compute_window import REFRESH_SECONDS
from dashboard.host_panels import to_panels
from dashboard.step_series import LEAST_STEPS, RunSeries, StepTable
from dashboard_scene import SimulatedTelemetry


def test_first_look_is_bounded_and_updates_ask_only_for_the_end() -> None:
    asked: list[tuple[int, int]] = []
    seconds = [0.0]

    def ask(first: int, last: int) -> pa.Table:
        asked.append((first, last))
        return pa.table({"step": np.arange(first, last + 1), "value": np.arange(first, last + 1) * 2.0})

    table = StepTable(ask, now=lambda: seconds[0])
    table.rows(last_step=50_000, n_ranks=1_000_000)
    seconds[0] += 2 * REFRESH_SECONDS
    rows = table.rows(last_step=50_001, n_ranks=1_000_000)

    assert asked == [(50_000 - LEAST_STEPS + 1, 50_000), (49_998, 50_001)]
    steps = rows["step"].to_pylist()
    assert steps == sorted(set(steps))
    assert steps[-1] == 50_001


def test_samples_of_two_names_stay_apart() -> None:
    series = RunSeries("demo", SimulatedTelemetry(nonfinite_steps=frozenset({3})))

    loss = series.sample("loss", last_step=20, n_ranks=8)
    norm = series.sample("grad_norm", last_step=20, n_ranks=8)

    assert len(loss.steps) == len(norm.steps) == 21
    assert loss.median[0] > norm.median[0]
    assert np.flatnonzero(~loss.is_finite).tolist() == [3]


def test_the_hottest_device_speaks_for_its_node() -> None:
    rows = pa.table(
        {
            "node": ["a", "a", "b"],
            "device": ["cpu0", "cpu1", "cpu0"],
            "metric": ["temperature_celsius"] * 3,
            "time_ns": [10, 10, 20],
            "value": [50.0, 90.0, 40.0],
        }
    )

    (panel,) = to_panels(rows)

    assert panel.nodes == ("a", "b")
    assert panel.values[0, 0] == 90.0
    assert np.isnan(panel.values[0, 1])
