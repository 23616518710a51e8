"""The one place where the dashboard's objects are made: FastAPI with the pages of Dash under /ui/."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from dash import Dash
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse
from sqlalchemy import Engine

from collector.settings import Settings
from collector.store.records.session import open_engine
from collector.store.telemetry.client import connect
from dashboard import queries
from dashboard.api.routes import api_router
from dashboard.backstage import STORE_ERRORS, Backstage
from dashboard.callbacks.panels import add_panels
from dashboard.callbacks.routing import add_routing
from dashboard.page_paths import PagePaths
from dashboard.pages.shell import shell
from dashboard.pulse import Pulse
from dashboard.run_cache import RunCache
from dashboard.stored_telemetry import StoredTelemetry
from dashboard.telemetry_source import TelemetrySource

logger = logging.getLogger(__name__)

UI_PREFIX = "/ui/"
ASSETS = Path(__file__).parent / "assets"
INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>
<link rel="icon" href="/ui/assets/icon.svg" type="image/svg+xml">{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


def create_app(settings: Settings, *, engine: Engine | None = None, source: TelemetrySource | None = None) -> FastAPI:
    """Return the application: pages under /ui/, the API under /api/v1, /healthz.

    Args:
        settings: where the stores are, and the public address from which websockets are let in too.
        engine: the records store, opened from `settings` unless given.
        source: the telemetry store, likewise.
    """
    engine = engine or open_engine(settings.records_url)
    source = source or StoredTelemetry(connect(settings.store_url))
    stage = Backstage(engine, source, RunCache(engine, source), Pulse(lambda: queries.counters(engine)))
    # no /docs: its scripts come from a CDN, and pages must work offline; /openapi.json is there for any viewer
    server = FastAPI(
        title="flightwatch",
        description="Who slows the job, since when, and what it costs.",
        version="1",
        docs_url=None,
        redoc_url=None,
    )
    server.include_router(api_router(stage))
    for kind in STORE_ERRORS:
        server.add_exception_handler(kind, _unavailable)
    pages = _pages(server, settings)
    add_routing(pages, stage)
    add_panels(pages, stage)
    _add_edges(server)
    return server


def _pages(server: FastAPI, settings: Settings) -> Dash:
    pages = Dash(
        __name__,
        server=server,  # type: ignore[arg-type]  # Dash 4.4 takes a FastAPI; its annotation lags
        routes_pathname_prefix=UI_PREFIX,
        requests_pathname_prefix=UI_PREFIX,
        assets_folder=str(ASSETS),
        index_string=INDEX,
        title="flightwatch",
        update_title="",
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        suppress_callback_exceptions=True,  # panels exist on their own page only
        add_log_handler=False,
        websocket_allowed_origins=[settings.public_url.rstrip("/")] if settings.public_url else [],
        websocket_inactivity_timeout=0,  # a wall display is never touched, and must stay live
        enable_mcp=False,
    )
    pages.layout = shell
    return pages


def _add_edges(server: FastAPI) -> None:
    """Add what answers all other addresses.

    Last, so that every real route comes first; but before Dash's own catch-all, which comes at the start of the server
    and would answer an unknown API path with a page.
    """

    server.add_middleware(PagePaths, prefix=UI_PREFIX)

    @server.get("/", include_in_schema=False)
    @server.get(UI_PREFIX.rstrip("/"), include_in_schema=False)
    async def root() -> RedirectResponse:
        return RedirectResponse(UI_PREFIX)

    @server.get("/{rest:path}", include_in_schema=False)
    async def unknown(rest: str) -> JSONResponse:
        return JSONResponse(
            {"detail": f"there is nothing at /{rest}; see /openapi.json for the API and /ui/ for the pages"}, 404
        )


async def _unavailable(_request: Request, error: Any) -> JSONResponse:
    logger.warning("a store does not answer: %s", error)
    return JSONResponse({"detail": str(error).splitlines()[0]}, status_code=503)
