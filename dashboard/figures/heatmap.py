"""Rank x step: each rank's compute time as a ratio to its peers.

Above, the ranks that stand out; below, all of them, pooled by the worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from analytics.window import Topology
from dashboard.culprits import excess
from dashboard.figures.palette import Palette, base_layout
from dashboard.figures.pooling import even_starts, group_rows, pool_worst
from dashboard.figures.safe_text import short_label

# A row thinner than a pixel may not be drawn at all, so there are never more rows than pixels (and well below the
# 1,250 x 400 that a browser draws in 0.2 s).
MAX_ROWS = 360
MAX_COLUMNS = 400
WORST_ROWS = 12
FEW_RANKS = 32  # so few are shown once, each with its name, worst first
FULL_COLOUR_RATIO = 1.5  # and its inverse: the ends of the colour scale
HEIGHT = 480
HOVER = "%{y}<br>step %{x}<br>%{z} % of its peers' time (0: no record)<extra></extra>"


@dataclass(frozen=True, slots=True)
class StepMark:
    """A step to point at, with a short word for it."""

    step: int
    word: str


def ratio_heatmap(
    topology: Topology,
    steps: NDArray[np.int64],
    log_ratios: NDArray[np.floating],
    colours: Palette,
    *,
    key: str = "",
    marked_ranks: Sequence[int] = (),
    marked_steps: Sequence[StepMark] = (),
) -> go.Figure:
    """Return the heatmap of (n, m) log ratios to peers.

    Cells are whole per cents in one byte: 0 = no record, 255 = 2.55 times the peers or more. A cell of several
    ranks and steps shows the one furthest from its peers.
    """
    ranked = np.argsort(-excess(log_ratios), kind="stable")
    marked = np.isin(topology.ranks, np.asarray(marked_ranks, dtype=np.int64))
    ranked = np.concatenate([ranked[marked[ranked]], ranked[~marked[ranked]]])
    columns = even_starts(len(steps), MAX_COLUMNS)
    few = len(topology.ranks) <= FEW_RANKS
    worst = ranked if few else ranked[:WORST_ROWS]
    figure = go.Figure(layout=_layout(colours, key=key, few=few))
    figure.add_trace(
        _trace(
            pool_worst(log_ratios[worst], np.arange(len(worst)), columns),
            steps[columns],
            [_rank_label(topology, index, is_marked=bool(marked[index])) for index in worst],
            colours,
            axis="y",
        )
    )
    if not few:
        groups = group_rows(topology.ranks, topology.nodes, MAX_ROWS)
        pooled = pool_worst(log_ratios[groups.order], groups.starts, columns)
        labels = [short_label(label, 60) for label in groups.labels]
        figure.add_trace(_trace(pooled, steps[columns], labels, colours, axis="y2"))
    _mark_steps(figure, marked_steps, steps, colours)
    return figure


def to_percent(log_ratios: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return the ratio in whole per cents, 1..255; 0 where unknown."""
    with np.errstate(over="ignore"):
        percent = np.clip(np.rint(100 * np.exp(log_ratios.astype(np.float64))), 1, 255)
    return np.where(np.isnan(percent), 0, percent).astype(np.uint8)


def colour_scale(colours: Palette) -> list[list[Any]]:
    """Return the scale over 0..255: 0 = no record, then equal steps of log ratio from 1/1.5 to 1.5, then flat."""
    arm = np.log(FULL_COLOUR_RATIO)
    stops = 100 * np.exp(np.linspace(-arm, arm, len(colours.ratio_scale))) / 255
    middle = [[float(round(stop, 5)), colour] for stop, colour in zip(stops, colours.ratio_scale, strict=True)]
    edge = 0.5 / 255
    ends = colours.ratio_scale[0], colours.ratio_scale[-1]
    return [[0.0, colours.no_record], [edge, colours.no_record], [edge, ends[0]], *middle, [1.0, ends[1]]]


def _rank_label(topology: Topology, index: int, *, is_marked: bool) -> str:
    mark = "▶ " if is_marked else ""
    return f"{mark}rank {topology.ranks[index]} · {short_label(topology.nodes[index], 18)}"


def _trace(
    log_ratios: NDArray[np.floating], steps: NDArray[np.int64], labels: list[str], colours: Palette, *, axis: str
) -> go.Heatmap:
    return go.Heatmap(
        z=to_percent(log_ratios),
        x=steps,
        y=labels,
        yaxis=axis,
        zmin=0,
        zmax=255,
        colorscale=colour_scale(colours),
        showscale=False,
        hovertemplate=HOVER,
    )


def _layout(colours: Palette, *, key: str, few: bool) -> dict[str, Any]:
    layout = base_layout(colours, height=HEIGHT, key=key)
    layout["margin"] = {"l": 168, "r": 12, "t": 18, "b": 36}
    rows = layout["yaxis"] | {"type": "category", "autorange": "reversed", "showgrid": False, "ticks": ""}
    layout["xaxis"] = layout["xaxis"] | {"showgrid": False, "title_text": "step", "anchor": "y" if few else "y2"}
    layout["yaxis"] = rows | {"domain": [0.0, 1.0] if few else [0.62, 1.0], "dtick": 1}
    if not few:
        layout["yaxis2"] = rows | {"domain": [0.0, 0.57], "nticks": 12, "anchor": "x"}
    return layout


def _mark_steps(figure: go.Figure, marks: Sequence[StepMark], steps: NDArray[np.int64], colours: Palette) -> None:
    for mark in marks:
        if len(steps) and steps[0] <= mark.step <= steps[-1]:
            line = {"color": colours.text, "width": 1, "dash": "dot"}
            figure.add_shape(type="line", x0=mark.step, x1=mark.step, y0=0, y1=1, yref="paper", line=line)
            figure.add_annotation(
                x=mark.step,
                y=1,
                yref="paper",
                yanchor="bottom",
                text=mark.word,
                showarrow=False,
                font={"size": 10, "color": colours.muted},
            )
