"""Alembic's environment for the records store. collector.store.migrate hands it a connection; `alembic` opens one."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from collector.settings import Settings
from collector.store.records import Base
from collector.store.records.session import open_engine


def migrate(connection: Connection) -> None:
    """Run the wanted migrations on `connection`, in one transaction where the database can."""
    # SQLite cannot alter most of a table in place: batch mode copies it.
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    migrate(given)
else:
    with open_engine(Settings.from_environment().records_url).begin() as opened:
        migrate(opened)
