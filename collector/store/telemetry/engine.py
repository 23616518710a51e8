"""The embedded engine: chDB (ClickHouse as a library) at one path, used by many threads.

What chDB 4.4 allows: one path per process and one process per path; any number of connections to it, each serving
one statement at a time without holding the interpreter's lock. A connection keeps its SETs, so every request gets one
of its own (1.5 ms) and no request can loosen the limits of another.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chdb

from collector.store.telemetry.statement import Statement
from flightwatch.errors import FlightwatchError

PRIVATE = 0o700  # a directory that we make: what a job does is its owner's to show
MAX_QUERY_THREADS = 2
MAX_QUERY_BYTES = 4 << 30
MAX_QUERY_SECONDS = 60
MAX_RESULT_BYTES = 1 << 30  # a result is built in memory before it is sent

LIMITS = {
    "max_threads": MAX_QUERY_THREADS,
    "max_memory_usage": MAX_QUERY_BYTES,
    "max_execution_time": MAX_QUERY_SECONDS,
    "max_result_bytes": MAX_RESULT_BYTES,
}
# ClickHouse's own default inserts with one thread; two would only split our blocks into twice the parts.
WRITE_SETTINGS = {"max_threads": MAX_QUERY_THREADS, "max_memory_usage": MAX_QUERY_BYTES, "max_insert_threads": 1}

_CODE = re.compile(r"Code: (\d+)\.")


class EngineError(Exception):
    """The engine refused or failed a statement; `code` is ClickHouse's, the text is its message."""

    def __init__(self, text: str) -> None:
        found = _CODE.search(text)
        super().__init__(text[found.start() :] if found else text)
        self.code = int(found[1]) if found else 1002  # UNKNOWN_EXCEPTION


@dataclass(frozen=True, slots=True)
class Answer:
    """A statement's output in the wanted format, and its counts."""

    body: bytes
    rows_read: int
    rows_written: int
    seconds: float


class Engine:
    """chDB at `path`. Any thread may call any method; a call blocks for as long as its statement runs."""

    def __init__(self, path: Path) -> None:
        """Open, and create if need be, the store at `path`.

        Raises:
            FlightwatchError: another process has it open, or it cannot be opened.
        """
        self.path = path
        try:
            for folder in (path.parent, path):  # a mode is of the last directory made alone
                folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self._lock = _lock(path.with_name(path.name + ".lock"))
        except OSError as error:
            raise FlightwatchError(f"the telemetry store {path} cannot be opened: {error.strerror}") from error
        try:
            # Held to the end: the engine stops with its last connection.
            self._anchor = chdb.connect(str(path))
        except RuntimeError as error:
            cause = str(error).strip().splitlines()[0]
            raise FlightwatchError(
                f"the telemetry store {path} cannot be opened ({cause}); has another program it open?"
            ) from error
        version, timezone = self.read("SELECT version(), timezone()").body.decode().split()
        self.version = version
        self.timezone = timezone

    def read(
        self,
        sql: str,
        *,
        output_format: str = "TabSeparated",
        database: str = "",
        settings: Mapping[str, str] | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> Answer:
        """Run a query that cannot write, within LIMITS; `settings` may tighten these, never loosen them.

        Raises:
            EngineError: the engine refused or failed it.
        """
        # 2, not 1: clients read from system.settings that nothing may be set, and refuse to pass any setting. What 2
        # allows beyond that, the front refuses: SET, and the limits in a SETTINGS clause (statement.py).
        chosen = {**(settings or {}), **_tightened(settings or {})}
        return self._run(sql, output_format, database, {**chosen, "readonly": "2"}, parameters)

    def write(
        self,
        sql: str,
        *,
        database: str = "",
        settings: Mapping[str, str] | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> Answer:
        """Run a statement that may write, and return when it has.

        Raises:
            EngineError: the engine refused or failed it.
        """
        chosen = {**(settings or {}), **{name: str(value) for name, value in WRITE_SETTINGS.items()}}
        return self._run(sql, "TabSeparated", database, chosen, parameters)

    def insert_file(
        self, insert: Statement, file: Path, *, database: str = "", settings: Mapping[str, str] | None = None
    ) -> Answer:
        """Insert the rows of `file`, which is in the statement's format; a file, since chDB cuts inline data short."""
        source = f"FROM INFILE {quote(str(file))} COMPRESSION 'none'"
        sql = f"{insert.sql} {source} {insert.settings} FORMAT {insert.format}"
        return self.write(sql, database=database, settings=settings)

    def close(self) -> None:
        """Stop the engine. Nothing may run any more."""
        self._anchor.close()
        os.close(self._lock)

    def _run(
        self,
        sql: str,
        output_format: str,
        database: str,
        settings: Mapping[str, str],
        parameters: Mapping[str, str] | None,
    ) -> Answer:
        try:
            connection = chdb.connect(str(self.path))
            try:
                if database:
                    connection.query(f"USE {quote_identifier(database)}")
                connection.query("SET " + ", ".join(f"{name} = {quote(value)}" for name, value in settings.items()))
                result: Any = connection.query(sql, output_format, params=dict(parameters) if parameters else None)
                return Answer(result.bytes(), result.storage_rows_read(), result.rows_written(), result.elapsed())
            finally:
                connection.close()
        except RuntimeError as error:
            raise EngineError(str(error)) from error


def quote(text: str) -> str:
    """Return `text` as a string literal of ClickHouse."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quote_identifier(name: str) -> str:
    """Return `name` as a quoted identifier of ClickHouse."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _tightened(settings: Mapping[str, str]) -> dict[str, str]:
    tightened = {}
    for name, limit in LIMITS.items():
        try:
            wanted = float(settings.get(name, 0))
        except ValueError:
            wanted = 0
        tightened[name] = f"{wanted:g}" if 0 < wanted < limit else str(limit)
    return tightened


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(descriptor, 20).decode(errors="replace").strip()
        os.close(descriptor)
        raise FlightwatchError(
            f"the telemetry store {path.with_suffix('')} is already open in process {holder or 'unknown'}"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
