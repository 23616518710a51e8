"""A number that training reports (loss, gradient norm) over steps. What is not finite is marked, never dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from dashboard.figures.palette import Palette, base_layout
from dashboard.figures.safe_text import safe_text
from dashboard.figures.thinning import thin

HEIGHT = 230


@dataclass(frozen=True, slots=True)
class SampleSeries:
    """One sample's median, lowest and highest value over the ranks that reported it; arrays (m,), steps ascending."""

    name: str
    steps: NDArray[np.int64]
    median: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]

    @property
    def is_finite(self) -> NDArray[np.bool_]:
        """Return (m,): no rank reported NaN or infinity."""
        return np.isfinite(self.median) & np.isfinite(self.lowest) & np.isfinite(self.highest)


def sample_line(series: SampleSeries, colours: Palette, *, key: str = "") -> go.Figure:
    """Return the figure of `series`: median, band from lowest to highest rank, crosses where a value was not finite."""
    finite = series.is_finite
    kept = thin(np.where(finite, series.median, 0), np.where(finite, series.highest, 0))
    layout = base_layout(colours, height=HEIGHT, key=key)
    layout["xaxis"] = layout["xaxis"] | {"title_text": "step"}
    layout["yaxis"] = layout["yaxis"] | {"nticks": 5}
    layout["hovermode"] = "x unified"
    figure = go.Figure(layout=layout)
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    figure.add_trace(go.Scatter(x=series.steps[kept], y=_gaps(series.lowest, finite)[kept], **edge))
    figure.add_trace(
        go.Scatter(
            x=series.steps[kept],
            y=_gaps(series.highest, finite)[kept],
            fill="tonexty",
            fillcolor=colours.good_band,
            **edge,
        )
    )
    figure.add_trace(
        go.Scatter(
            x=series.steps[kept],
            y=_gaps(series.median, finite)[kept],
            mode="lines",
            line={"color": colours.accent, "width": 1.5},
            hovertemplate=safe_text(series.name) + " %{y:.4~g}<extra></extra>",
        )
    )
    _mark_nonfinite(figure, series, colours)
    return figure


def _gaps(values: NDArray[np.float64], finite: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.where(finite, values, np.nan)


def _mark_nonfinite(figure: go.Figure, series: SampleSeries, colours: Palette) -> None:
    bad = np.flatnonzero(~series.is_finite)
    if not len(bad):
        return
    shown = bad[thin(np.zeros(len(bad)), most=200)]
    finite = series.highest[series.is_finite]
    level = float(finite.max()) if len(finite) else 0.0
    figure.add_trace(
        go.Scatter(
            x=series.steps[shown],
            y=np.full(len(shown), level),
            mode="markers",
            marker={"symbol": "x", "size": 8, "color": colours.bad},
            customdata=[_worst_word(series, index) for index in shown],
            hovertemplate="%{customdata} reported<extra></extra>",
        )
    )


def _worst_word(series: SampleSeries, index: int) -> str:
    values = np.array([series.median[index], series.lowest[index], series.highest[index]])
    return "NaN" if np.isnan(values).any() else "infinity"
