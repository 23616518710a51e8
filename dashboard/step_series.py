"""Series over steps (step time, loss, gradient norm) of one run in memory: bounded at first, then only what is new."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dashboard.compute_window import REFRESH_SECONDS
from dashboard.figures.sample_line import SampleSeries
from dashboard.figures.step_time import StepSeries
from dashboard.telemetry_source import TelemetrySource

# The first look reads at most this many step records; with 1,024 ranks that is the newest 3,900 steps.
FIRST_LOOK_ROWS = 4_000_000
LEAST_STEPS = 300
MOST_STEPS = 20_000
AGAIN_STEPS = 3  # the newest steps are asked for again: late ranks move their quantiles
SAMPLES = ("loss", "grad_norm")


class StepTable:
    """Rows of one question about a run's steps, kept and appended to. Any number of threads may ask."""

    def __init__(self, ask: Callable[[int, int], pa.Table], *, now: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._now = ask, now
        self._lock = threading.Lock()
        self._rows: pa.Table | None = None
        self._looked_at = -np.inf

    def rows(self, *, last_step: int, n_ranks: int) -> pa.Table:
        """Return the rows up to `last_step` in ascending order of steps."""
        with self._lock:
            if self._rows is None or self._now() - self._looked_at >= REFRESH_SECONDS:
                self._rows = self._refreshed(last_step, n_ranks)
                self._looked_at = self._now()
            return self._rows

    def _refreshed(self, last_step: int, n_ranks: int) -> pa.Table:
        depth = min(MOST_STEPS, max(LEAST_STEPS, FIRST_LOOK_ROWS // max(1, n_ranks)))
        held = self._rows
        if held is None or not held.num_rows:
            return self._ask(max(0, last_step - depth + 1), last_step).sort_by("step")
        first = max(0, pc.max(held["step"]).as_py() - AGAIN_STEPS + 1)
        kept = held.filter(pc.and_(pc.less(held["step"], first), pc.greater(held["step"], last_step - MOST_STEPS)))
        return pa.concat_tables([kept, self._ask(first, last_step).sort_by("step").cast(kept.schema)])


class RunSeries:
    """The step series of one run."""

    def __init__(self, run: str, source: TelemetrySource, *, sample_names: Sequence[str] = SAMPLES) -> None:
        self._steps = StepTable(lambda first, last: source.step_seconds(run, first_step=first, last_step=last))
        self._samples = StepTable(
            lambda first, last: source.samples(run, names=sample_names, first_step=first, last_step=last)
        )

    def step_time(self, *, last_step: int, n_ranks: int) -> StepSeries:
        """Return step seconds over ranks."""
        rows = self._steps.rows(last_step=last_step, n_ranks=n_ranks)
        return StepSeries(
            steps=_whole(rows, "step"),
            median=_real(rows, "seconds_median"),
            p05=_real(rows, "seconds_p05"),
            p95=_real(rows, "seconds_p95"),
            worst=_real(rows, "seconds_max"),
            n_ranks=_whole(rows, "n_ranks"),
        )

    def sample(self, name: str, *, last_step: int, n_ranks: int) -> SampleSeries:
        """Return what training reported under `name`."""
        rows = self._samples.rows(last_step=last_step, n_ranks=n_ranks)
        rows = rows.filter(pc.equal(rows["name"].cast(pa.string()), name))
        return SampleSeries(
            name=name,
            steps=_whole(rows, "step"),
            median=_real(rows, "value_median"),
            lowest=_real(rows, "value_min"),
            highest=_real(rows, "value_max"),
        )


def _whole(rows: pa.Table, name: str) -> NDArray[np.int64]:
    return np.asarray(rows[name].to_numpy(), dtype=np.int64)


def _real(rows: pa.Table, name: str) -> NDArray[np.float64]:
    return np.asarray(rows[name].to_numpy(), dtype=np.float64)
