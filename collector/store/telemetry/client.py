"""The one way to the telemetry store: a columnar client for ClickHouse's HTTP protocol."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import clickhouse_connect
import pyarrow as pa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from collector.errors import SchemaMismatchError, StoreUnreachableError
from collector.store.scripts import describe_mismatch
from collector.store.telemetry.columns import Column, to_arrow
from collector.store.telemetry.scripts import newest_version
from flightwatch.errors import FlightwatchError

DEFAULT_PORT = 8124
CONNECT_TIMEOUT_SECONDS = 5
# Above the 60 s that the embedded engine allows a query, so that its own error arrives instead of a timeout.
ANSWER_TIMEOUT_SECONDS = 90
# Collapsing repeats in each insert is left to merges and FINAL: it costs 0.2 s of CPU, not 0.065 s, per 200,000 rows.
# A batch is of many nodes: a few with wrong clocks would have it refused for its number of days (100 by default).
INSERT_SETTINGS = {"optimize_on_insert": 0, "max_partitions_per_insert_block": 0}


def connect(url: str) -> TelemetryClient:
    """Return a client for `url` (http[s]://[user[:password]@]host[:port][/database]); it connects at its first use."""
    return TelemetryClient(url)


class TelemetryClient:
    """Inserts columns and returns Arrow tables. One instance serves any number of threads.

    The URL may be of the embedded front or of a ClickHouse server. Inside is one clickhouse-connect client without a
    session, whose urllib3 pool gives each concurrent call a connection of its own. Every method raises
    StoreUnreachableError when nothing answers at the URL, and tries anew when called again.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise FlightwatchError(f"FLIGHTWATCH_STORE_URL {url!r} is not an http URL such as http://127.0.0.1:8124")
        self._parts = parts
        self.url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._lock = threading.Lock()
        self._client: Client | None = None

    def insert(self, table: str, columns: Mapping[str, Column]) -> None:
        """Insert rows given by columns, and return when they are on disk.

        Args:
            table: one of migrations/telemetry.
            columns: by name, all of one length: numpy arrays (not copied); lists of str, numbers or lists of whole
                numbers; or (codes, words), where row i holds words[codes[i]].

        An insert that is repeated after an error does no harm: equal keys collapse.

        Arrow, measured with batches of 65,000 to 200,000 rows of `ops` through the embedded front on two busy cores:
        1.0-1.25 M rows/s; per 200,000 rows 0.01 s of the client's CPU with (codes, words), 0.06 s with a list of str,
        0.02 s in clickhouse-connect's Native; 0.1-0.2 s of the store's, merges included.
        """
        rows = to_arrow(columns)
        if rows.num_rows == 0:
            return
        try:
            self._call(lambda client: client.insert_arrow(table, rows, settings=INSERT_SETTINGS))
        except StoreUnreachableError:
            # The server may have closed an idle connection just as we wrote to it.
            self._call(lambda client: client.insert_arrow(table, rows, settings=INSERT_SETTINGS))

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Return the rows of `sql`, in which `{name:Type}` stands for parameters[name], bound by the server."""
        bound = dict(parameters) if parameters else None
        return self._call(lambda client: client.query_arrow(sql, parameters=bound, use_strings=True))

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """Run a statement that returns no table, such as DDL."""
        return self._call(lambda client: client.command(sql, parameters=dict(parameters) if parameters else None))

    def ping(self) -> None:
        """Return if the store answers.

        Raises:
            StoreUnreachableError: it does not.
        """
        self._call(lambda client: client.command("SELECT 1"))

    def schema_version(self) -> int:
        """Return the number of the newest migration that was applied, 0 if none was."""
        if not self.command("EXISTS TABLE schema_migrations"):
            return 0
        return int(self.command("SELECT max(version) FROM schema_migrations"))

    def check_schema(self) -> None:
        """Return if the store has this program's schema.

        Raises:
            SchemaMismatchError: it is older or newer.
        """
        found, wanted = self.schema_version(), newest_version()
        if found != wanted:
            name = f"the telemetry store {self.url}"
            raise SchemaMismatchError(describe_mismatch(name, str(found), str(wanted), is_newer=found > wanted))

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None

    def _call(self, action: Any) -> Any:
        try:
            return action(self._connected())
        except OperationalError as error:
            if error.code:  # the server's own error; without a code the transport failed
                raise
            raise self._unreachable(error) from error

    def _connected(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = self._open()
            return self._client

    def _open(self) -> Client:
        # It warns of each transport error that it also raises, to the console of whoever waits for a store.
        logging.getLogger("clickhouse_connect").setLevel(logging.ERROR)
        parts = self._parts
        secure = parts.scheme == "https"
        try:
            return clickhouse_connect.get_client(
                interface=parts.scheme,
                host=parts.hostname or "",
                port=parts.port or (8443 if secure else DEFAULT_PORT),
                username=unquote(parts.username) if parts.username else None,
                password=unquote(parts.password) if parts.password else "",
                database=parts.path.strip("/") or "__default__",
                compress=False,  # loopback or a local network: compressing costs more than it saves
                connect_timeout=CONNECT_TIMEOUT_SECONDS,
                send_receive_timeout=ANSWER_TIMEOUT_SECONDS,
                autogenerate_session_id=False,  # a session admits one query at a time
                form_encode_query_params=True,  # a list of 10,000 ranks does not fit a URL
                client_name="flightwatch",
            )
        except DatabaseError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> StoreUnreachableError:
        cause = _innermost(error)
        return StoreUnreachableError(
            f"the telemetry store does not answer at {self.url} ({cause}); "
            "start `flightwatch store`, or set FLIGHTWATCH_STORE_URL"
        )


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    reason = getattr(error, "reason", None)
    text = str(reason if isinstance(reason, Exception) else error)
    return text.splitlines()[0] if text else type(error).__name__
