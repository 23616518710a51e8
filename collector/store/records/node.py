"""A machine on which ranks stand."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from collector.store.records.base import Base


class Node(Base):
    """A node by its name, with the span of time in which its forwarder was heard."""

    __tablename__ = "nodes"

    name: Mapped[str] = mapped_column(String(253), primary_key=True)
    first_seen_at: Mapped[datetime]
    last_seen_at: Mapped[datetime]
