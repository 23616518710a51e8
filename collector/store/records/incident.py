"""One trouble, from its opening to its end."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from collector.store.records.base import Base

FIRING = "firing"
RESOLVED = "resolved"


class Incident(Base):
    """What a person is told about: findings of one entity and kind over time. `finding` is the newest one, whole."""

    __tablename__ = "incidents"
    __table_args__ = (Index("ix_incidents_run_state", "run_id", "state"),)

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    state: Mapped[str] = mapped_column(String(20), default=FIRING)
    kind: Mapped[str] = mapped_column(String(40))
    cause: Mapped[str] = mapped_column(String(40))
    entity: Mapped[str] = mapped_column(String(300))
    severity: Mapped[str] = mapped_column(String(20))
    opened_at: Mapped[datetime]
    updated_at: Mapped[datetime] = mapped_column(index=True)
    resolved_at: Mapped[datetime | None]
    opened_step: Mapped[int] = mapped_column(BigInteger)
    resolved_step: Mapped[int | None] = mapped_column(BigInteger)
    first_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    ranks: Mapped[list[int]]
    nodes: Mapped[list[str]]
    summary: Mapped[str]
    confidence: Mapped[float]
    slowdown: Mapped[float] = mapped_column(default=1.0)
    finding: Mapped[dict[str, Any]]
