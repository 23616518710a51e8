"""The page of one incident: the verdict, what it rests on, how it went, whom it was told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dash import dcc, html

from analytics.findings import spoken
from dashboard.figures import heatmap
from dashboard.pages.attributes import attributes
from dashboard.pages.parts import banner, card, graph, ratio_legend, state_chip
from dashboard.queries import DeliveryRow, FindingRow, IncidentRow
from dashboard.verdict import verdict_of
from dashboard.wording import clock, duration, rank_span, run_path

MAX_UPDATES_SHOWN = 6


def incident_page(incident: IncidentRow, run_name: str) -> Any:
    """Return the page of `incident`; callbacks fill what moves."""
    return html.Div(
        [
            dcc.Store(id="incident-id", data=incident.id),
            html.Nav(
                [
                    dcc.Link("Runs", href="/ui/"),
                    " / ",
                    dcc.Link(run_name or incident.run_id, href=run_path(incident.run_id), id="back-link"),
                    " / ",
                ],
                className="crumbs",
                **attributes(aria_label="Breadcrumb"),
            ),
            html.H1(f"Incident on {spoken(incident.entity)}"),
            html.Div(id="incident-body"),
            card(
                "Compute time against peers, around the incident",
                [
                    ratio_legend(),
                    graph("incident-heatmap", heatmap.HEIGHT, "Heatmap of ranks by steps around the incident"),
                ],
                note="▶ marks the ranks of this incident",
            ),
            html.Div(id="incident-records", className="row row-two"),
        ]
    )


def incident_body(incident: IncidentRow, run_line: Any = None) -> Any:
    """Return the banner and the evidence; `run_line` says how the run and its data are."""
    finding = incident.finding
    return [
        html.Div(
            [
                state_chip("open" if incident.is_open else "resolved"),
                html.Span(incident.severity, className="fact"),
                html.Span(f"ranks {rank_span(incident.ranks)}", className="fact"),
                html.Span(_nodes(incident.nodes), className="fact"),
                html.Span(f"by {finding.get('detector', 'unknown detector')}", className="fact"),
            ],
            className="facts",
        ),
        run_line,
        banner(verdict_of(incident), with_link=False),
        html.Div(
            [
                card("Evidence", _evidence(finding.get("evidence") or ())),
                card(
                    "How sure",
                    [
                        _named_list("Ruled out", [str(item) for item in finding.get("ruled_out") or ()]),
                        _named_list("What would change the verdict", _one(finding.get("would_change_my_mind"))),
                    ],
                ),
            ],
            className="row row-two",
        ),
    ]


def incident_records(
    incident: IncidentRow, findings: Sequence[FindingRow], deliveries: Sequence[DeliveryRow], now: datetime
) -> Any:
    """Return the timeline and the log of deliveries."""
    return [card("Timeline", _timeline(incident, findings, now)), card("Told to", _deliveries(deliveries))]


def _evidence(items: Sequence[dict[str, Any]]) -> Any:
    if not items:
        return html.P("The detector recorded none.", className="sub")
    head = html.Thead(html.Tr([html.Th(text, scope="col") for text in ("Measured", "Value", "Normal")]))
    rows = [
        html.Tr(
            [
                html.Td(str(item.get("text", ""))),
                html.Td(_quantity(item.get("value"), item.get("unit")), className="number"),
                html.Td(_quantity(item.get("baseline"), item.get("unit")), className="number"),
            ]
        )
        for item in items
    ]
    return html.Table([head, html.Tbody(rows)], className="table")


def _quantity(value: Any, unit: Any) -> str:
    if not isinstance(value, int | float):
        return "–"
    return f"{value:,.4g} {unit or ''}".strip()


def _named_list(title: str, items: Sequence[str]) -> Any:
    content = html.Ul([html.Li(item) for item in items]) if items else html.P("Nothing recorded.", className="sub")
    return html.Div([html.H3(title), content])


def _timeline(incident: IncidentRow, findings: Sequence[FindingRow], now: datetime) -> Any:
    moments = [(incident.opened_at, "opened", f"at step {incident.opened_step:,}: {incident.summary}")]
    moments += _updates(incident, findings)
    if incident.resolved_at:
        step = f"at step {incident.resolved_step:,}, " if incident.resolved_step is not None else ""
        lasted = duration((incident.resolved_at - incident.opened_at).total_seconds())
        moments.append((incident.resolved_at, "resolved", f"{step}after {lasted}"))
    else:
        lasted = duration((now - incident.opened_at).total_seconds())
        moments.append((incident.updated_at, "still open", f"for {lasted}, last seen in step {incident.last_step:,}"))
    return html.Ol(
        [
            html.Li(
                [
                    html.Span(clock(moment), className="sub"),
                    html.Strong(word),
                    html.Span(text),
                ],
                className=f"moment moment-{word.replace(' ', '-')}",
            )
            for moment, word, text in moments
        ],
        className="timeline",
    )


def _updates(incident: IncidentRow, findings: Sequence[FindingRow]) -> list[tuple[datetime, str, str]]:
    """Return the moments at which the verdict's words changed, the newest ones."""
    moments = []
    last = str(findings[0].body.get("summary", "")) if findings else incident.summary
    for one in findings[1:]:
        summary = str(one.body.get("summary", ""))
        if summary != last:
            moments.append((one.created_at, "updated", summary))
            last = summary
    hidden = len(moments) - MAX_UPDATES_SHOWN
    if hidden > 0:
        moments = [(moments[hidden - 1][0], "updated", f"{hidden} earlier times"), *moments[hidden:]]
    return moments


def _deliveries(deliveries: Sequence[DeliveryRow]) -> Any:
    if not deliveries:
        return html.Div(
            [
                html.P("Nobody so far.", className="sub"),
                html.P(
                    ["With ", html.Code("FLIGHTWATCH_WEBHOOK_URL"), " set, a signed webhook tells of the next one."]
                ),
            ]
        )
    head = html.Thead(html.Tr([html.Th(text, scope="col") for text in ("Event", "Channel", "State", "Tries", "When")]))
    return html.Table([head, html.Tbody([_delivery_row(one) for one in deliveries])], className="table")


def _delivery_row(one: DeliveryRow) -> Any:
    state = [state_chip(one.state)]
    if one.last_error and one.state != "sent":
        state.append(html.Div(one.last_error, className="sub"))
    cells = [one.event, one.channel, state, f"{one.attempts}", clock(one.sent_at or one.created_at)]
    return html.Tr([html.Td(cell) for cell in cells])


def _nodes(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:3])
    return (
        spoken(f"node:{shown}")
        if len(nodes) == 1
        else f"nodes {shown}" + (f" and {len(nodes) - 3} more" * (len(nodes) > 3))
    )


def _one(text: Any) -> list[str]:
    return [str(text)] if text else []
