"""Host telemetry as small multiples: one panel per metric, the nodes that stand out over the middle of all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from dashboard.figures.palette import Palette, base_layout
from dashboard.figures.safe_text import safe_text, short_label

WORST_NODES = 6
PANELS_PER_ROW = 4
MAX_PANELS = 8  # 8 panels x (6 nodes + median) = 56 lines, below the 100 that a browser draws smoothly
PANEL_HEIGHT = 170
# What speaks of slowness first; a metric that is not named here comes after these, by name.
FIRST_METRICS = (
    "temperature_celsius",
    "cpu_busy_ratio",
    "pressure_cpu_some_ratio",
    "memory_available_bytes",
    "pressure_memory_full_ratio",
    "pressure_io_full_ratio",
    "disk_read_bytes_per_second",
    "network_received_bytes_per_second",
)
# By a metric's unit, the end of its name: how its title says it, and how its axis counts.
UNITS = (
    ("_bytes_per_second", "B/s", ".2~s"),
    ("_bytes", "B", ".2~s"),
    ("_ratio", "", ".0~%"),
    ("_celsius", "°C", ""),
)


@dataclass(frozen=True, slots=True)
class MetricPanel:
    """One metric of all nodes on a common clock.

    `nodes` (n,); `time_ns` (t,) unix; `values` (n, t), NaN = no sample.
    """

    metric: str
    nodes: tuple[str, ...]
    time_ns: NDArray[np.int64]
    values: NDArray[np.float64]


def host_metrics(panels: Sequence[MetricPanel], nodes: Sequence[str], colours: Palette, *, key: str = "") -> go.Figure:
    """Return the small multiples of `panels` with the lines of `nodes`, each in one colour throughout."""
    shown = sorted(panels, key=_importance)[:MAX_PANELS]
    columns = min(PANELS_PER_ROW, max(1, len(shown)))
    rows = -(-len(shown) // columns)
    titles = [metric_title(panel.metric) for panel in shown]
    figure = make_subplots(
        rows=rows, cols=columns, subplot_titles=titles, vertical_spacing=0.2, horizontal_spacing=0.05
    )
    base = base_layout(colours, height=figure_height(len(shown)), key=key)
    axis = base.pop("xaxis")
    base.pop("yaxis")
    legend = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "font": {"size": 11}}
    figure.update_layout(**base | {"showlegend": True, "legend": legend})
    figure.update_layout(margin={"l": 44, "r": 12, "t": 26, "b": 52})
    figure.update_xaxes(**axis | {"type": "date", "nticks": 4, "showgrid": False, "tickformat": "%H:%M"})
    figure.update_yaxes(**axis | {"nticks": 4, "rangemode": "tozero"})
    figure.update_annotations(font={"size": 12, "color": colours.muted})
    for place, panel in enumerate(shown):
        _draw(figure, panel, nodes, colours, row=place // columns + 1, column=place % columns + 1, is_first=place == 0)
    return figure


def metric_title(metric: str) -> str:
    """Return a metric's name in words, its unit behind a comma."""
    for end, unit, _ in UNITS:
        if metric.endswith(end):
            words = safe_text(metric.removesuffix(end).replace("_", " "))
            return f"{words}, {unit}" if unit else words
    return safe_text(metric.replace("_", " "))


def figure_height(n_panels: int) -> int:
    """Return the height in pixels of a figure of `n_panels` panels."""
    return 80 + PANEL_HEIGHT * max(1, -(-min(n_panels, MAX_PANELS) // PANELS_PER_ROW))


def worst_nodes(panels: Sequence[MetricPanel], accused: Sequence[str], *, most: int = WORST_NODES) -> list[str]:
    """Return the nodes to draw: accused ones first, then those furthest from the others in any metric.

    The distance is in robust standard deviations (1.4826 x median absolute deviation) of the nodes' newest values.
    """
    distance: dict[str, float] = {}
    for panel in panels:
        newest = np.array([_newest(row) for row in panel.values])
        middle = np.nanmedian(newest) if np.isfinite(newest).any() else np.nan
        spread = 1.4826 * np.nanmedian(np.abs(newest - middle)) if np.isfinite(middle) else np.nan
        for node, value in zip(panel.nodes, newest, strict=True):
            away = abs(value - middle) / spread if spread > 0 else float(value != middle)
            distance[node] = max(distance.get(node, 0.0), float(np.nan_to_num(away)))
    ordered = sorted(distance, key=lambda node: (node not in accused, -distance[node], node))
    return ordered[:most]


def _importance(panel: MetricPanel) -> tuple[int, str]:
    known = panel.metric in FIRST_METRICS
    return (FIRST_METRICS.index(panel.metric) if known else len(FIRST_METRICS)), panel.metric


def _newest(row: NDArray[np.float64]) -> float:
    known = row[np.isfinite(row)]
    return float(known[-1]) if len(known) else float("nan")


def _draw(
    figure: go.Figure,
    panel: MetricPanel,
    nodes: Sequence[str],
    colours: Palette,
    *,
    row: int,
    column: int,
    is_first: bool,
) -> None:
    times = panel.time_ns.astype("datetime64[ns]").astype("datetime64[ms]").astype(str)
    lines: list[tuple[str, NDArray[np.float64], str, float]] = []
    if len(panel.nodes) > len(nodes):
        with np.errstate(all="ignore"):
            known = np.isfinite(panel.values).any(axis=0)
            middle = np.full(panel.values.shape[1], np.nan)
            middle[known] = np.nanmedian(panel.values[:, known], axis=0)
        lines.append((f"median of {len(panel.nodes):,} nodes", middle, colours.muted, 2.0))
    for place, node in enumerate(nodes):
        if node in panel.nodes:
            values = panel.values[panel.nodes.index(node)]
            lines.append((short_label(node), values, colours.lines[place % len(colours.lines)], 1.3))
    for name, values, colour, width in lines:
        trace = go.Scatter(
            x=times,
            y=values,
            name=name,
            legendgroup=name,
            showlegend=is_first,
            mode="lines",
            connectgaps=False,
            line={"color": colour, "width": width},
            hovertemplate=name + " %{y:.4~g}<extra></extra>",
        )
        figure.add_trace(trace, row=row, col=column)
    formats = [form for end, _, form in UNITS if panel.metric.endswith(end)]
    figure.update_yaxes(tickformat=formats[0] if formats else "~s", row=row, col=column)
