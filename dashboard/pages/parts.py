"""Pieces that several pages share: chips, ages, the banner, cards around charts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import plotly.graph_objects as go
from dash import dcc, html

from dashboard.pages.attributes import attributes
from dashboard.queries import RunRow
from dashboard.verdict import SILENT_SECONDS, Verdict
from dashboard.wording import incident_path, words

GRAPH_CONFIG: Any = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "displayModeBar": "hover",
}
ICONS = {"critical": "▲", "warning": "▲", "ok": "✓", "silent": "?", "ended": "■", "waiting": "…"}


def state_chip(state: str) -> Any:
    """Return a state as a chip: colour and word, never colour alone."""
    return html.Span(words(state), className=f"chip chip-{state}")


def age(moment: datetime, now: datetime, *, is_running: bool) -> Any:
    """Return an age that counts on in the browser, also when nothing more arrives (assets/age.js)."""
    return html.Span(
        className="age",
        **attributes(
            data_age_seconds=f"{max(0.0, (now - moment).total_seconds()):.1f}",
            data_age_at=now.isoformat(),
            data_silent_after=str(SILENT_SECONDS) if is_running else "",
        ),
    )


def run_facts(run: RunRow, now: datetime, *, reporting: int | None = None, shape: str = "") -> Any:
    """Return the line under a title: state, coverage, nodes, steps, age of the data."""
    heard = run.ranks if reporting is None else reporting
    total = max(run.world_size, run.ranks)
    coverage = f"{heard:,} of {total:,} ranks"
    items = [
        state_chip(run.state),
        html.Span(coverage, className="fact" + (" fact-bad" if heard < total and run.state == "running" else "")),
        html.Span(f"{run.nodes:,} node{'s' if run.nodes != 1 else ''}", className="fact"),
        *([html.Span(shape, className="fact")] if shape else []),
        html.Span(f"step {run.last_step:,}" if run.last_step >= 0 else "no step yet", className="fact"),
        html.Span(["last record ", age(run.last_seen_at, now, is_running=run.state == "running")], className="fact"),
    ]
    return html.Div(items, className="facts")


def banner(verdict: Verdict, *, with_link: bool = True) -> Any:
    """Return the verdict as the banner: what, why, what next."""
    lines = [
        html.Div([html.Span("Why", className="key"), html.Span(verdict.why)]) if verdict.why else None,
        html.Div([html.Span("Next", className="key"), html.Span(verdict.next)]) if verdict.next else None,
    ]
    facts: list[Any] = [
        html.Span([html.Span(name, className="key"), text], className="fact") for name, text in verdict.facts
    ]
    headline = html.H2(verdict.headline)
    if verdict.incident_id and with_link:
        headline = html.H2(dcc.Link(verdict.headline, href=incident_path(verdict.incident_id), id="banner-link"))
        facts.append(dcc.Link("Open the incident →", href=incident_path(verdict.incident_id), className="more"))
    others = [
        html.Li(dcc.Link(one.summary, href=incident_path(one.id)), className=f"other-{one.severity}")
        for one in verdict.others
    ]
    return html.Section(
        [
            html.Div(
                [html.Span(ICONS[verdict.level], **attributes(aria_hidden="true")), verdict.label],
                className="banner-label",
            ),
            headline,
            html.Div([line for line in lines if line], className="banner-lines"),
            html.Div(facts, className="facts") if facts else None,
            html.Ul(others, className="others", **attributes(aria_label="Other open incidents")) if others else None,
            html.Div("No data is arriving any more: this verdict may be out of date.", className="silent-note"),
        ],
        className=f"banner banner-{verdict.level}",
        role="status",
        **attributes(aria_live="polite", data_level=verdict.level),
    )


def card(title: str, children: Any, *, note: Any = None, class_name: str = "") -> Any:
    """Return a titled card."""
    head = [html.H2(title), html.Div(note, className="note") if note is not None else None]
    body = children if isinstance(children, list) else [children]  # Dash renders no list within a list
    return html.Section(
        [html.Div([part for part in head if part is not None], className="card-head"), *body],
        className=f"card {class_name}",
        **attributes(aria_label=title),
    )


def graph(graph_id: str, height: int, label: str) -> Any:
    """Return an empty chart of fixed height, so that nothing jumps when it fills."""
    blank = go.Figure(layout={"height": height, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)"})
    blank.update_xaxes(visible=False).update_yaxes(visible=False)
    return html.Div(
        dcc.Graph(id=graph_id, figure=blank, config=GRAPH_CONFIG, style={"height": f"{height}px"}),
        role="img",
        **attributes(aria_label=label),
    )


def ratio_legend() -> Any:
    """Return the legend of the ratio heatmap."""
    return html.Div(
        [
            html.Span("faster 0.67×"),
            html.Span(className="ratio-ramp", role="img", **attributes(aria_label="Blue: faster. Orange: slower.")),
            html.Span("1.5× slower"),
            html.Span(className="no-record"),
            html.Span("no record"),
        ],
        className="legend",
    )
