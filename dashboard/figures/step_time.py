"""Step time over steps: the median rank, the band in which nine of ten ranks lie, and the worst rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from dashboard.figures.heatmap import StepMark
from dashboard.figures.palette import Palette, base_layout
from dashboard.figures.thinning import thin

HEIGHT = 230


@dataclass(frozen=True, slots=True)
class StepSeries:
    """Seconds per step over all ranks: every field (m,); steps ascending."""

    steps: NDArray[np.int64]
    median: NDArray[np.float64]
    p05: NDArray[np.float64]
    p95: NDArray[np.float64]
    worst: NDArray[np.float64]
    n_ranks: NDArray[np.int64]


def step_time(series: StepSeries, colours: Palette, *, key: str = "", marks: Sequence[StepMark] = ()) -> go.Figure:
    """Return the figure of `series`, thinned to what a screen can show."""
    kept = thin(series.median, series.worst)
    steps = series.steps[kept]
    layout = base_layout(colours, height=HEIGHT, key=key)
    layout["xaxis"] = layout["xaxis"] | {"title_text": "step"}
    layout["yaxis"] = layout["yaxis"] | {"title_text": "seconds", "rangemode": "tozero", "nticks": 5}
    layout["hovermode"] = "x unified"
    figure = go.Figure(layout=layout)
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    figure.add_trace(go.Scatter(x=steps, y=series.p05[kept], **edge))
    figure.add_trace(go.Scatter(x=steps, y=series.p95[kept], fill="tonexty", fillcolor=colours.good_band, **edge))
    for name, values, colour in (("worst", series.worst, colours.bad), ("median", series.median, colours.accent)):
        figure.add_trace(
            go.Scatter(
                x=steps,
                y=values[kept],
                name=name,
                mode="lines",
                line={"color": colour, "width": 1.6 if name == "median" else 1.0},
                hovertemplate=name + " %{y:.3~f} s<extra></extra>",
            )
        )
    for mark in marks:
        if len(steps) and steps[0] <= mark.step <= steps[-1]:
            figure.add_vline(x=mark.step, line={"color": colours.muted, "width": 1, "dash": "dot"})
    return figure
