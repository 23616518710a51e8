"""The page of one run: the verdict first, then who, when, and what the machines say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import dash_ag_grid as dag
import numpy as np
from dash import dcc, html

from analytics.window import UNKNOWN, Topology
from dashboard.culprits import SLOW_RATIO, Standing
from dashboard.figures import heatmap, host_metrics, sample_line, step_time
from dashboard.pages.attributes import attributes
from dashboard.pages.parts import card, graph, ratio_legend
from dashboard.queries import FindingRow, IncidentRow, RunRow
from dashboard.wording import duration, incident_path, rank_span, sentence, words

WINDOWS = (100, 300, 1000)
DEFAULT_WINDOW = 300
TABLE_ROWS = 100
COORDINATES = ("dp", "pp", "tp", "cp", "ep")
HOSTS_HEIGHT = host_metrics.figure_height(1)


def run_page(run: RunRow, axes: Sequence[str]) -> Any:
    """Return the page of `run`, whose ranks have coordinates on `axes`; callbacks fill it."""
    choice = dcc.RadioItems(
        id="window-steps",
        options=[{"label": f"{n:,}", "value": n} for n in WINDOWS],
        value=DEFAULT_WINDOW,
        inline=True,
        className="segmented",
        persistence=True,
    )
    return html.Div(
        [
            dcc.Store(id="run-id", data=run.id),
            html.Nav([dcc.Link("Runs", href="/ui/"), " / "], className="crumbs", **attributes(aria_label="Breadcrumb")),
            html.H1(run.name or run.id),
            html.Div(id="run-facts"),
            html.Div(id="run-banner"),
            html.Div(
                [
                    card(
                        "Compute time against peers",
                        [ratio_legend(), graph("run-heatmap", heatmap.HEIGHT, "Heatmap of ranks by steps")],
                        note=["newest ", choice, " steps"],
                        class_name="wide",
                    ),
                    card(
                        "Furthest above their peers",
                        _standings_grid(axes),
                        note=html.Span(id="standings-note"),
                    ),
                ],
                className="row row-heat",
            ),
            html.Div(
                [
                    card(
                        "Step time",
                        graph("run-step-time", step_time.HEIGHT, "Step time: median, p5 to p95, worst rank"),
                        note="median, p5–p95 and worst rank",
                    ),
                    card("Loss", graph("run-loss", sample_line.HEIGHT, "Loss over steps")),
                    card("Gradient norm", graph("run-grad-norm", sample_line.HEIGHT, "Gradient norm over steps")),
                ],
                className="row row-three",
            ),
            card(
                "Hosts",
                graph("run-hosts", HOSTS_HEIGHT, "Host telemetry, one panel per metric"),
                note="last 15 min; the nodes that differ most from the others",
            ),
            html.Div(id="run-incidents"),
        ],
    )


def standing_rows(standings: Sequence[Standing]) -> list[dict[str, Any]]:
    """Return the culprit table's rows; unknown numbers are None, which the grid shows empty and sorts last."""
    return [
        {
            "id": str(one.rank),
            "rank": one.rank,
            "node": one.node,
            **one.coordinates,
            "now": _known(one.ratio_now),
            "peak": _known(one.ratio_peak),
            "slow": one.steps_slow,
        }
        for one in standings
    ]


def shape(topology: Topology) -> str:
    """Return the job's shape, such as "dp 32 x pp 4", from the coordinates that every rank told."""
    parts = [
        f"{name} {int(values.max()) + 1}"
        for name in COORDINATES
        if (values := topology.coordinates.get(name)) is not None and len(values) and (values != UNKNOWN).all()
    ]
    return " × ".join(parts)


def axes_of(topology: Topology) -> list[str]:
    """Return the coordinates on which ranks differ."""
    return [name for name in COORDINATES if len(np.unique(topology.coordinates.get(name, np.zeros(1)))) > 1]


def incident_list(incidents: Sequence[IncidentRow], explanations: Sequence[FindingRow], now: datetime) -> Any:
    """Return all incidents of the run, and what was explained without blaming anybody."""
    rows = [_incident_item(one, now) for one in incidents]
    calm = [
        html.Li([html.Span("explained", className="chip"), html.Span(str(one.body.get("summary", "")))])
        for one in explanations
    ]
    if not rows and not calm:
        return card("Incidents", html.P("None so far.", className="sub"))
    return card("Incidents", html.Ul([*rows, *calm], className="incident-list"))


def _incident_item(one: IncidentRow, now: datetime) -> Any:
    end = one.resolved_at or now
    lasted = duration((end - one.opened_at).total_seconds())
    what = f"{words(one.kind)}, {words(one.cause)} · ranks {rank_span(one.ranks)}"
    text = f"{what} · since step {one.first_step:,}, {lasted}"
    chip = html.Span("open" if one.is_open else "resolved", className=f"chip chip-{'bad' if one.is_open else 'ended'}")
    return html.Li(
        [chip, html.Div([dcc.Link(sentence(one.summary), href=incident_path(one.id)), html.Div(text, className="sub")])]
    )


def _standings_grid(axes: Sequence[str]) -> Any:
    number = {"type": "rightAligned", "width": 60}
    ratios = number | {
        "valueFormatter": {"function": "flightwatchRatio(params.value)"},
        "cellClassRules": {"hot": f"params.value >= {SLOW_RATIO}"},
    }
    columns = [
        {"field": "rank", "headerName": "Rank", **number, "pinned": "left"},
        {"field": "node", "headerName": "Node", "minWidth": 84, "flex": 1, "tooltipField": "node"},
        *({"field": axis, "headerName": axis.upper(), **number, "width": 44} for axis in axes),
        {"field": "now", "headerName": "Now", **ratios, "headerTooltip": "median ratio to peers, newest 20 steps"},
        {"field": "peak", "headerName": "Peak", **ratios, "headerTooltip": "highest median of ten steps in the window"},
        {
            "field": "slow",
            "headerName": "Slow",
            **number,
            "headerTooltip": f"steps in the window at {SLOW_RATIO}× the peers or more",
        },
    ]
    return dag.AgGrid(
        id="standings",
        columnDefs=columns,
        rowData=[],
        getRowId="params.data.id",
        defaultColDef={"sortable": True, "resizable": False, "suppressMovable": True},
        dashGridOptions={
            "theme": {"function": "themeQuartz.withParams(flightwatchGrid)"},
            "rowHeight": 28,
            "headerHeight": 30,
            "animateRows": False,
            "enableCellTextSelection": True,
        },
        style={"height": f"{heatmap.HEIGHT + 24}px", "width": "100%"},
    )


def _known(value: float) -> float | None:
    return round(value, 4) if value == value else None
