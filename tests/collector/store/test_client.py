from __future__ import annotations

import socket
import threading
import uuid

import numpy as np
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from collector.errors import SchemaMismatchError, StoreUnreachableError
from collector.store.telemetry.client import TelemetryClient, connect
from collector.store.telemetry.migrations import LEDGER
from collector.store.telemetry.scripts import newest_version
from flightwatch.errors import FlightwatchError


@pytest.fixture
def client(store_url: str) -> TelemetryClient:
    return connect(store_url)


@pytest.fixture
def table(client: TelemetryClient) -> str:
    name = "t" + uuid.uuid4().hex
    client.command(f"CREATE TABLE {name} (run LowCardinality(String), op UInt64, value Float64) ENGINE = Memory")
    return name


def test_what_was_inserted_comes_back(client: TelemetryClient, table: str) -> None:
    ops = np.array([1, 2**64 - 1], np.uint64)

    client.insert(table, {"run": (np.array([1, 0]), ["a", "b"]), "op": ops, "value": np.array([np.nan, -np.inf])})

    rows = client.query(f"SELECT * FROM {table} ORDER BY op")
    assert rows["run"].to_pylist() == ["b", "a"]
    assert rows["op"].to_pylist() == [1, 2**64 - 1]
    assert str(rows["value"].to_pylist()) == "[nan, -inf]"


def test_inserting_nothing_is_nothing(client: TelemetryClient, table: str) -> None:
    client.insert(table, {"run": [], "op": np.zeros(0, np.uint64), "value": np.zeros(0)})

    assert client.query(f"SELECT count() AS n FROM {table}")["n"].to_pylist() == [0]


def test_values_with_quotes_are_only_values(client: TelemetryClient, table: str) -> None:
    nasty = "a' OR '1'='1\\\t\nä {x:String} --"
    client.insert(table, {"run": [nasty, "plain"], "op": [1, 2], "value": [0.0, 0.0]})

    found = client.query(f"SELECT run FROM {table} WHERE run = {{run:String}}", {"run": nasty})

    assert found["run"].to_pylist() == [nasty]


def test_one_insert_may_touch_more_days_than_the_engine_allows_by_default(client: TelemetryClient) -> None:
    table = "t" + uuid.uuid4().hex
    client.command(f"CREATE TABLE {table} (day UInt32) ENGINE = MergeTree PARTITION BY day ORDER BY day")

    client.insert(table, {"day": np.arange(150, dtype=np.uint32)})

    assert client.query(f"SELECT count() AS n FROM {table}")["n"].to_pylist() == [150]


def test_a_list_of_ten_thousand_ranks_can_be_bound(client: TelemetryClient) -> None:
    found = client.query("SELECT length({ranks:Array(UInt32)}) AS n", {"ranks": list(range(100_000, 110_000))})

    assert found["n"].to_pylist() == [10_000]


def test_an_empty_answer_keeps_its_columns(client: TelemetryClient, table: str) -> None:
    assert client.query(f"SELECT run, op FROM {table}").column_names == ["run", "op"]


def test_one_client_serves_many_threads(client: TelemetryClient, table: str) -> None:
    def insert(value: int) -> None:
        client.insert(table, {"run": ["a"], "op": [value], "value": [float(value)]})
        client.query(f"SELECT * FROM {table}")

    threads = [threading.Thread(target=insert, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert client.query(f"SELECT op FROM {table} ORDER BY op")["op"].to_pylist() == list(range(8))


def test_a_servers_error_is_not_taken_for_silence(client: TelemetryClient) -> None:
    with pytest.raises(DatabaseError, match="UNKNOWN_TABLE"):
        client.query("SELECT * FROM nope")


def test_says_where_nothing_answers_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    client = connect(f"http://user:secret@127.0.0.1:{port}")

    with pytest.raises(StoreUnreachableError) as caught:
        client.ping()
    line = str(caught.value)
    assert f"http://127.0.0.1:{port}" in line
    assert "flightwatch store" in line
    assert "secret" not in line
    assert "\n" not in line


@pytest.mark.parametrize("url", ["127.0.0.1:8124", "clickhouse://x", "http://"])
def test_refuses_what_is_no_http_url(url: str) -> None:
    with pytest.raises(FlightwatchError, match="is not an http URL"):
        connect(url)


def test_accepts_a_store_of_this_schema(client: TelemetryClient) -> None:
    client.check_schema()

    assert client.schema_version() == newest_version()


@pytest.mark.parametrize(
    ("version", "remedy"), [(None, "run `flightwatch migrate`"), (newest_version() + 1, "upgrade flightwatch")]
)
def test_refuses_a_store_of_another_schema(
    client: TelemetryClient, store_url: str, version: int | None, remedy: str
) -> None:
    database = "d" + uuid.uuid4().hex
    client.command(f"CREATE DATABASE {database}")
    other = connect(f"{store_url}/{database}")
    if version is not None:
        other.command(LEDGER)
        other.insert("schema_migrations", {"version": np.array([version], np.uint32)})

    with pytest.raises(SchemaMismatchError) as caught:
        other.check_schema()

    found = version or 0
    assert f"is at version {found}, this flightwatch wants {newest_version()}; {remedy}" in str(caught.value)
