"""The records store's engine and its unit of work, on SQLite and PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from collector.errors import SchemaMismatchError, StoreUnreachableError
from collector.store.scripts import describe_mismatch, migration_scripts
from flightwatch.errors import FlightwatchError

# A writer of ours holds the lock for milliseconds; ten seconds means that something hangs.
SQLITE_BUSY_TIMEOUT_SECONDS = 10.0
PRIVATE = 0o700  # a directory that we make: what a job does is its owner's to show
_WRITING = "flightwatch_writing"


def open_engine(url: str) -> Engine:
    """Return an engine for `url`: sqlite:///PATH (its directory is made) or postgresql://...; nothing is connected yet.

    Raises:
        FlightwatchError: the URL is malformed, or its directory cannot be made.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise FlightwatchError(f"FLIGHTWATCH_RECORDS_URL {url!r} is not a URL such as sqlite:////path/file") from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _open_sqlite(parsed)
    if backend == "postgresql":
        return create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
    raise FlightwatchError(f"records store {backend!r} is not supported: use sqlite:/// or postgresql://")


class UnitOfWork:
    """One transaction: commits when its block ends, rolls back when it raises; objects stay readable afterwards.

    `writing=True` takes SQLite's write lock at the start (BEGIN IMMEDIATE): two writers that both began by reading
    would otherwise fail at once with "database is locked", whatever the busy timeout.

    Example:
        with UnitOfWork(engine, writing=True) as work:
            work.session.add(node)
    """

    session: Session

    def __init__(self, engine: Engine, *, writing: bool = False) -> None:
        self._engine = engine.execution_options(**{_WRITING: writing})
        self._writing = writing

    def __enter__(self) -> Self:
        self.session = Session(self._engine, expire_on_commit=False)
        if self._writing:
            self.session.connection()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.session.commit()
            else:
                self.session.rollback()
        finally:
            self.session.close()


def check_schema(engine: Engine) -> None:
    """Return if the records store has this program's schema.

    Raises:
        SchemaMismatchError: it is older or newer.
        StoreUnreachableError: it cannot be opened.
    """
    found = current_revision(engine)
    scripts = record_scripts()
    wanted = scripts.get_current_head()
    if found != wanted:
        known = {script.revision for script in scripts.walk_revisions()}
        name = f"the records store {engine.url.render_as_string(hide_password=True)}"
        is_newer = found is not None and found not in known
        raise SchemaMismatchError(describe_mismatch(name, str(found or 0), str(wanted), is_newer=is_newer))


def current_revision(engine: Engine) -> str | None:
    """Return the revision that the store is at, None before the first migration."""
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except OperationalError as error:
        where = engine.url.render_as_string(hide_password=True)
        cause = str(error.orig).splitlines()[0]
        raise StoreUnreachableError(
            f"the records store {where} cannot be opened ({cause}); is FLIGHTWATCH_RECORDS_URL right?"
        ) from error


def record_scripts() -> ScriptDirectory:
    """Return Alembic's view of migrations/records."""
    return ScriptDirectory(str(migration_scripts("records")))


def _open_sqlite(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        folder = Path(url.database).expanduser().absolute().parent
        try:
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        except OSError as error:
            raise FlightwatchError(
                f"the records store's directory {folder} cannot be made: {error.strerror}"
            ) from error
    engine = create_engine(url, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    # sqlite3 would begin transactions by itself, late and deferred; with None it leaves them to _begin_sqlite.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    options: dict[str, Any] = dict(connection.get_execution_options())
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(_WRITING) else "BEGIN")
