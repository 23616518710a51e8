"""What the API answers, beside the rows of dashboard.queries."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Problem(BaseModel):
    """Why a question has no answer."""

    detail: str


class Health(BaseModel):
    """The dashboard itself and the stores that it reads."""

    status: str = Field(description="ok, or degraded when a store does not answer")
    records: str
    telemetry: str


class HeatmapRow(BaseModel):
    """One row: a rank, or several that show their worst."""

    label: str
    percent: list[int | None]


class Heatmap(BaseModel):
    """Compute time as per cent of the peers' median, pooled by the furthest from 100; null = no record."""

    run: str
    first_step: int | None
    last_step: int | None
    ranks: int
    steps: list[int] = Field(description="first step of each column")
    rows: list[HeatmapRow]
