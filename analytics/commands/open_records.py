"""The records store as a verb that only reads opens it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from collector.settings import Settings
from collector.store.records.session import UnitOfWork, check_schema, open_engine


@contextmanager
def open_records(settings: Settings) -> Iterator[Session]:
    """Give a session on a store of this program's schema.

    Raises:
        SchemaMismatchError: the store has another schema, or none.
        StoreUnreachableError: it cannot be opened.
    """
    engine = open_engine(settings.records_url)
    try:
        check_schema(engine)
        with UnitOfWork(engine) as work:
            yield work.session
    finally:
        engine.dispose()
