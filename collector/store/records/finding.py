"""What a detector said, kept as it said it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from collector.store.records.base import Base


class StoredFinding(Base):
    """One finding in the schema flightwatch.findings/1, and the incident it fed (innocent ones feed none)."""

    __tablename__ = "findings"

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    incident_id: Mapped[str | None] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime]
    body: Mapped[dict[str, Any]]
