"""The REST API under /api/v1, and /healthz."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import JSONResponse
from sqlalchemy import text

from collector.store.records.session import UnitOfWork
from dashboard import queries
from dashboard.api.models import Health, Heatmap, HeatmapRow, Problem
from dashboard.backstage import STORE_ERRORS, Backstage
from dashboard.compute_window import CAPACITY_STEPS, WindowView
from dashboard.figures.heatmap import to_percent
from dashboard.figures.pooling import even_starts, group_rows, pool_worst
from dashboard.queries import IncidentRow, RunRow

UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": Problem}}


def api_router(stage: Backstage) -> APIRouter:
    """Return the routes of runs, incidents, heatmaps and health."""
    router = APIRouter()
    _add_runs(router, stage)
    _add_incidents(router, stage)
    _add_health(router, stage)
    return router


def pooled_heatmap(run_id: str, view: WindowView, *, rows: int, columns: int) -> Heatmap:
    """Return `view` pooled by the worst to at most `rows` x `columns`."""
    if not len(view.steps):
        n_ranks = len(view.topology.ranks)
        return Heatmap(run=run_id, first_step=None, last_step=None, ranks=n_ranks, steps=[], rows=[])
    groups = group_rows(view.topology.ranks, view.topology.nodes, rows)
    starts = even_starts(len(view.steps), columns)
    percent = to_percent(pool_worst(view.log_ratios[groups.order], groups.starts, starts)).tolist()
    return Heatmap(
        run=run_id,
        first_step=int(view.steps[0]),
        last_step=int(view.steps[-1]),
        ranks=len(view.topology.ranks),
        steps=view.steps[starts].tolist(),
        rows=[
            HeatmapRow(label=label, percent=[cell or None for cell in row])
            for label, row in zip(groups.labels, percent, strict=True)
        ],
    )


def _add_runs(router: APIRouter, stage: Backstage) -> None:
    # Sub-resources come first: a run's id may hold a slash, and {run_id:path} takes all that is left.
    @router.get("/api/v1/runs", tags=["runs"])
    def list_runs(limit: Annotated[int, Query(ge=1, le=queries.MAX_RUNS)] = 50) -> list[RunRow]:
        """Return the newest runs first."""
        return queries.list_runs(stage.engine, most=limit)

    @router.get("/api/v1/revisions", tags=["runs"])
    def list_revisions() -> dict[str, str]:
        """Return, per run, a text that changes whenever there is something new to see."""
        return queries.counters(stage.engine)

    @router.get("/api/v1/runs/{run_id:path}/incidents", tags=["incidents"], responses=UNKNOWN)
    def list_incidents(run_id: str) -> list[IncidentRow]:
        """Return the run's incidents: open ones first, dearest first."""
        _known_run(stage, run_id)
        return queries.list_incidents(stage.engine, run_id)

    @router.get("/api/v1/runs/{run_id:path}/heatmap", tags=["runs"], responses=UNKNOWN)
    def get_heatmap(
        run_id: str,
        steps: Annotated[int, Query(ge=1, le=CAPACITY_STEPS)] = 300,
        rows: Annotated[int, Query(ge=1, le=1250)] = 360,
        columns: Annotated[int, Query(ge=1, le=400)] = 400,
    ) -> Heatmap:
        """Return ranks x newest steps: compute time in per cent of the peers' median, pooled by the worst."""
        view = stage.window(_known_run(stage, run_id), steps)
        return pooled_heatmap(run_id, view, rows=rows, columns=columns)

    @router.get("/api/v1/runs/{run_id:path}", tags=["runs"], responses=UNKNOWN)
    def get_run(run_id: str) -> RunRow:
        """Return one run."""
        return _known_run(stage, run_id)


def _add_incidents(router: APIRouter, stage: Backstage) -> None:
    @router.get("/api/v1/incidents/{incident_id}", tags=["incidents"], responses=UNKNOWN)
    def get_incident(incident_id: str) -> IncidentRow:
        """Return one incident with its newest finding."""
        incident = queries.find_incident(stage.engine, incident_id)
        if incident is None:
            raise HTTPException(404, f"there is no incident {incident_id!r}")
        return incident


def _add_health(router: APIRouter, stage: Backstage) -> None:
    @router.get("/healthz", tags=["health"], responses={503: {"model": Health}}, response_model=Health)
    async def get_health() -> JSONResponse:
        """Return 200 when both stores answer, else 503."""
        records = await asyncio.to_thread(_ask, lambda: _select_one(stage))
        telemetry = await asyncio.to_thread(_ask, stage.source.ping)
        is_well = records == telemetry == "ok"
        health = Health(status="ok" if is_well else "degraded", records=records, telemetry=telemetry)
        return JSONResponse(health.model_dump(), status_code=200 if is_well else 503)


def _known_run(stage: Backstage, run_id: str) -> RunRow:
    run = queries.find_run(stage.engine, run_id)
    if run is None:
        raise HTTPException(404, f"there is no run {run_id!r}")
    return run


def _select_one(stage: Backstage) -> None:
    with UnitOfWork(stage.engine) as work:
        work.session.execute(text("SELECT 1"))


def _ask(question: Any) -> str:
    try:
        question()
    except STORE_ERRORS as error:
        return str(error).splitlines()[0]
    return "ok"
