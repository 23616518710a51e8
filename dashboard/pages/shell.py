"""What stands around every page: the header, the stores that carry liveness, the place where a page goes."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from dashboard.pages.attributes import attributes

FALLBACK_MILLISECONDS = 5000


def shell() -> Any:
    """Return the layout of the application. `revision` moves when the page shown should look again."""
    return html.Div(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="pulse"),
            dcc.Store(id="revision", data={"n": 0, "scope": ""}),
            dcc.Store(id="slow-revision", data={"n": 0}),
            dcc.Store(id="theme", data="light"),
            dcc.Store(id="title"),
            dcc.Store(id="scope"),
            dcc.Interval(id="fallback", interval=FALLBACK_MILLISECONDS),
            html.A("Skip to content", href="#page", className="skip-link"),
            html.Header(
                [
                    dcc.Link(
                        [html.Span(className="brand-mark", **attributes(aria_hidden="true")), "flightwatch"],
                        href="/ui/",
                        className="brand",
                    ),
                    html.Nav(
                        [dcc.Link("Runs", href="/ui/"), html.A("API", href="/openapi.json")],
                        **attributes(aria_label="Main"),
                    ),
                    html.Div(className="grow"),
                    html.Span(
                        "connecting",
                        id="link-state",
                        className="link-state",
                        role="status",
                        **attributes(aria_live="polite"),
                    ),
                    html.Button(
                        "Dark",
                        id="theme-toggle",
                        className="quiet-button",
                        **attributes(aria_label="Switch light and dark"),
                    ),
                ],
                className="top-bar",
            ),
            html.Main(html.Div("Loading…", className="empty"), id="page", tabIndex="-1"),
        ]
    )


def not_found(what: str, hint: str) -> Any:
    """Return the page for an address behind which there is nothing."""
    return html.Div(
        [html.H1(what), html.P(hint), dcc.Link("See all runs", href="/ui/", className="button")], className="empty"
    )


def trouble(text: str) -> Any:
    """Return the page that says why there is no page."""
    return html.Div([html.H1("A store does not answer"), html.P(text)], className="empty", role="alert")
