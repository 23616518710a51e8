"""One process's life in a run."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from collector.store.records.base import Base


class Rank(Base):
    """A rank's epoch: who it was, where it stood, how it ended.

    `epoch` is 16 hexadecimal digits (SQLite has no unsigned 64-bit integer). `records_written` is set at the end.
    """

    __tablename__ = "ranks"
    __table_args__ = (Index("ix_ranks_run_rank", "run_id", "rank"),)

    epoch: Mapped[str] = mapped_column(String(16), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    attempt: Mapped[int] = mapped_column(default=0)
    rank: Mapped[int]
    world_size: Mapped[int]
    local_rank: Mapped[int] = mapped_column(default=0)
    node: Mapped[str] = mapped_column(String(253))
    pid: Mapped[int] = mapped_column(BigInteger, default=0)
    coordinates: Mapped[dict[str, Any]]
    sources: Mapped[dict[str, Any]]
    framework: Mapped[str] = mapped_column(String(100), default="")
    clock_offset_ns: Mapped[int] = mapped_column(BigInteger)
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    end: Mapped[str] = mapped_column(String(20), default="")
    records_written: Mapped[int | None] = mapped_column(BigInteger)
