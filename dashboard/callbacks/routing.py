"""Which page an address shows, and what keeps it live."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import unquote

from dash import ClientsideFunction, Dash, Input, Output, ctx, set_props
from dash.exceptions import WebsocketDisconnected

from dashboard import queries
from dashboard.backstage import STORE_ERRORS, Backstage
from dashboard.pages.incident import incident_page
from dashboard.pages.run import axes_of, run_page
from dashboard.pages.runs import runs_page
from dashboard.pages.shell import not_found, trouble
from dashboard.pulse import TICK_SECONDS

logger = logging.getLogger(__name__)

QUIET_SECONDS = 10.0  # something is said at least this often, so that the page knows the socket lives (assets/live.js)
# A closed tab's callback would live on while other tabs share its socket (Dash uses one SharedWorker): ask it for a
# sign of life now and then, and end when none comes.
PROBE_EVERY_SECONDS = 60.0


def add_routing(app: Dash, stage: Backstage) -> None:
    """Add the router, the push of counters, and the wiring of assets/*.js."""

    @app.callback(
        Output("page", "children"), Output("title", "data"), Output("scope", "data"), Input("url", "pathname")
    )
    async def route(pathname: str | None) -> tuple[Any, str, str]:
        try:
            return await asyncio.to_thread(page_at, stage, unquote(pathname or ""))
        except STORE_ERRORS as error:
            logger.warning("cannot show %s: %s", pathname, error)
            return trouble(str(error).splitlines()[0]), "flightwatch", ""

    @app.callback(websocket=True, persistent=True)
    async def push_counters() -> None:
        socket = ctx.websocket
        queue = stage.pulse.listen()
        try:
            await _tell(socket, queue)
        except (TimeoutError, WebsocketDisconnected):
            pass
        finally:
            stage.pulse.leave(queue)

    for name, source in (
        ("pulse", Input("pulse", "data")),
        ("fallback", Input("fallback", "n_intervals")),
        ("scope", Input("scope", "data")),
        ("title", Input("title", "data")),
        ("drawn", Input("run-heatmap", "figure")),
        ("drawnIncident", Input("incident-heatmap", "figure")),
    ):
        _in_browser(app, ClientsideFunction("flightwatch", name), source)
    toggle = ClientsideFunction("flightwatchTheme", "toggle")
    _in_browser(app, toggle, Output("theme", "data"), Input("theme-toggle", "n_clicks"))


def page_at(stage: Backstage, path: str) -> tuple[Any, str, str]:
    """Return the page at `path`, its title, and the run whose changes it shows ("" = all runs)."""
    parts = path.strip("/").split("/", 2)
    kind, name = [*parts, "", ""][1:3]
    if kind == "":
        return runs_page(), "Runs · flightwatch", ""
    if kind == "runs" and name:
        run = queries.find_run(stage.engine, name)
        if run is None:
            return (
                not_found(f"There is no run {name!r}", "It may have been deleted, or never reached this server."),
                "",
                "",
            )
        axes = axes_of(stage.cache.topology(run.id))
        return run_page(run, axes), f"{run.name or run.id} · flightwatch", run.id
    if kind == "incidents" and name:
        incident = queries.find_incident(stage.engine, name)
        if incident is None:
            return not_found(f"There is no incident {name!r}", "See the incidents of a run on its page."), "", ""
        run = queries.find_run(stage.engine, incident.run_id)
        page = incident_page(incident, run.name if run else "")
        return page, f"{incident.entity} · flightwatch", incident.run_id
    return not_found("There is no such page", path), "", ""


def _in_browser(app: Dash, function: ClientsideFunction, *dependencies: Any) -> None:
    app.clientside_callback(function, *dependencies)  # type: ignore[no-untyped-call]  # Dash annotates only its decorator


async def _tell(socket: Any, queue: asyncio.Queue[dict[str, str]]) -> None:
    probe_at = asyncio.get_running_loop().time() + PROBE_EVERY_SECONDS
    number = 0
    while not socket.is_shutdown:
        try:
            changed = await asyncio.wait_for(queue.get(), timeout=QUIET_SECONDS)
        except TimeoutError:
            changed = {}
        number += 1
        set_props("pulse", {"data": {"n": number, "counters": changed}})
        if asyncio.get_running_loop().time() >= probe_at:
            await socket.get_prop("url", "pathname", timeout=QUIET_SECONDS)
            probe_at = asyncio.get_running_loop().time() + PROBE_EVERY_SECONDS
        await asyncio.sleep(TICK_SECONDS / 4)
