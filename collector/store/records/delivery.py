"""The outbox: what is to be told to a channel, and how far it got."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from collector.store.records.base import Base

PENDING = "pending"
SENT = "sent"
DEAD = "dead"


class Delivery(Base):
    """One message to one channel, written in the transaction that changes the incident.

    `id` is the webhook-id of every try.
    """

    __tablename__ = "deliveries"
    __table_args__ = (Index("ix_deliveries_state_next_attempt_at", "state", "next_attempt_at"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    incident_id: Mapped[str] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"), index=True)
    event: Mapped[str] = mapped_column(String(40))
    channel: Mapped[str] = mapped_column(String(40))
    body: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(20), default=PENDING)
    attempts: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    next_attempt_at: Mapped[datetime]
    sent_at: Mapped[datetime | None]
    last_error: Mapped[str] = mapped_column(Text, default="")
