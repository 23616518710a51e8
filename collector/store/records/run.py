"""One training effort; its id is stable across restarts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from collector.store.records.base import Base

RUNNING = "running"
ENDED = "ended"


class Run(Base):
    """A run as the collector and the analytics see it.

    `revision` counts up whenever analytics has looked at new data of the run: pages redraw when it moves.
    """

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(String(200), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    state: Mapped[str] = mapped_column(String(20), default=RUNNING, index=True)
    world_size: Mapped[int] = mapped_column(default=0)
    started_at: Mapped[datetime]
    last_seen_at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime | None]
    last_step: Mapped[int] = mapped_column(BigInteger, default=-1)
    revision: Mapped[int] = mapped_column(BigInteger, default=0)
