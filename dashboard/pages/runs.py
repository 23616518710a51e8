"""The list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dash import dcc, html

from dashboard.pages.parts import age, state_chip
from dashboard.queries import RunRow
from dashboard.wording import clock, duration, run_path

HEADINGS = ("Run", "State", "Verdict", "Ranks", "Nodes", "Last step", "Data age", "Started", "Lasted")


def runs_page() -> Any:
    """Return the page; its table is filled by a callback."""
    return html.Div([html.H1("Runs"), html.Div(id="runs-table")])


def runs_table(runs: Sequence[RunRow], now: datetime) -> Any:
    """Return the table of `runs`, or what to do when there is none."""
    if not runs:
        return _no_runs()
    head = html.Thead(html.Tr([html.Th(text, scope="col") for text in HEADINGS]))
    body = html.Tbody([_row(run, now) for run in runs])
    return html.Div(html.Table([head, body], className="table"), className="card table-card")


def _row(run: RunRow, now: datetime) -> Any:
    total = max(run.world_size, run.ranks)
    ranks = f"{run.ranks:,}" if run.ranks == total else f"{run.ranks:,} of {total:,}"
    lasted = ((run.ended_at or now) - run.started_at).total_seconds()
    name: list[Any] = [dcc.Link(run.name or run.id, href=run_path(run.id), className="strong")]
    if run.name and run.name != run.id:
        name.append(html.Div(run.id, className="sub"))
    return html.Tr(
        [
            html.Td(name),
            html.Td(state_chip(run.state)),
            html.Td(_verdict(run)),
            html.Td(ranks, className="number"),
            html.Td(f"{run.nodes:,}", className="number"),
            html.Td(f"{run.last_step:,}" if run.last_step >= 0 else "–", className="number"),
            html.Td(age(run.last_seen_at, now, is_running=run.state == "running")),
            html.Td(clock(run.started_at), className="sub"),
            html.Td(duration(lasted), className="number"),
        ]
    )


def _verdict(run: RunRow) -> Any:
    if run.open_incidents:
        many = "s" if run.open_incidents > 1 else ""
        return html.Span(f"▲ {run.open_incidents} open incident{many}", className="chip chip-bad")
    if run.incidents:
        return html.Span(f"{run.incidents} resolved", className="sub")
    return html.Span("no incident", className="sub")


def _no_runs() -> Any:
    return html.Div(
        [
            html.H2("No run has reported yet"),
            html.P("See a simulated job of 1,024 ranks with a slow node:"),
            html.Pre("flightwatch demo"),
            html.P("Or watch your own job, without a change to its code:"),
            html.Pre("flightwatch run -- torchrun --nproc_per_node 8 train.py"),
            html.P("It appears here by itself."),
        ],
        className="empty card",
    )
