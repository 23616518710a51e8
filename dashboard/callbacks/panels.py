"""What fills the panels of the pages. Each asks the stores for what is new and draws it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import plotly.graph_objects as go
from dash import Dash, Input, Output, State, html, no_update

from dashboard.backstage import STORE_ERRORS, Backstage
from dashboard.callbacks.panels_content import Panels
from dashboard.figures import heatmap, sample_line
from dashboard.figures.notice import notice
from dashboard.figures.palette import palette
from dashboard.pages.run import HOSTS_HEIGHT

logger = logging.getLogger(__name__)


def add_panels(app: Dash, stage: Backstage) -> None:
    """Add the callbacks of all panels."""
    panels = Panels(stage)
    _add_list(app, panels)
    _add_run(app, panels)
    _add_incident(app, panels)


def _add_list(app: Dash, panels: Panels) -> None:
    @app.callback(Output("runs-table", "children"), Input("revision", "data"))
    async def runs_table(_revision: Any) -> Any:
        try:
            return await asyncio.to_thread(panels.runs)
        except STORE_ERRORS as error:
            return _message(error)


def _add_run(app: Dash, panels: Panels) -> None:
    revision, theme, run_id = Input("revision", "data"), Input("theme", "data"), State("run-id", "data")
    slow_revision = Input("slow-revision", "data")

    @app.callback(
        Output("run-facts", "children"),
        Output("run-banner", "children"),
        Output("run-incidents", "children"),
        revision,
        run_id,
    )
    async def head(_revision: Any, run: str) -> Any:
        try:
            return await asyncio.to_thread(panels.head, run)
        except STORE_ERRORS as error:
            return no_update, _message(error), no_update

    @app.callback(
        Output("run-heatmap", "figure"),
        Output("standings", "rowData"),
        Output("standings-note", "children"),
        revision,
        theme,
        Input("window-steps", "value"),
        run_id,
    )
    async def ratios(_revision: Any, colours: str, n_steps: int, run: str) -> Any:
        try:
            return await asyncio.to_thread(panels.ratios, run, n_steps, palette(colours))
        except STORE_ERRORS as error:
            return _notice(error, colours, heatmap.HEIGHT), no_update, ""

    @app.callback(
        Output("run-step-time", "figure"),
        Output("run-loss", "figure"),
        Output("run-grad-norm", "figure"),
        revision,
        theme,
        run_id,
    )
    async def series(_revision: Any, colours: str, run: str) -> Any:
        try:
            return await asyncio.to_thread(panels.series, run, palette(colours))
        except STORE_ERRORS as error:
            return (_notice(error, colours, sample_line.HEIGHT),) * 3

    @app.callback(Output("run-hosts", "figure"), Output("run-hosts", "style"), slow_revision, theme, run_id)
    async def hosts(_revision: Any, colours: str, run: str) -> Any:
        try:
            figure = await asyncio.to_thread(panels.hosts, run, palette(colours))
        except STORE_ERRORS as error:
            figure = _notice(error, colours, HOSTS_HEIGHT)
        return figure, {"height": f"{figure.layout.height}px"}


def _add_incident(app: Dash, panels: Panels) -> None:
    revision, theme, incident_id = Input("revision", "data"), Input("theme", "data"), State("incident-id", "data")

    @app.callback(Output("incident-body", "children"), Output("incident-records", "children"), revision, incident_id)
    async def records(_revision: Any, incident: str) -> Any:
        try:
            return await asyncio.to_thread(panels.incident, incident)
        except STORE_ERRORS as error:
            return _message(error), no_update

    @app.callback(Output("incident-heatmap", "figure"), revision, theme, incident_id)
    async def around(_revision: Any, colours: str, incident: str) -> Any:
        try:
            return await asyncio.to_thread(panels.around, incident, palette(colours))
        except STORE_ERRORS as error:
            return _notice(error, colours, heatmap.HEIGHT)


def _message(error: Exception) -> Any:
    logger.warning("cannot fill a panel: %s", error)
    return html.Div(str(error).splitlines()[0], className="banner banner-silent", role="alert")


def _notice(error: Exception, colours: str, height: int) -> go.Figure:
    logger.warning("cannot draw a figure: %s", error)
    return notice(str(error).splitlines()[0], palette(colours), height=height)
