"""The front as curl and clickhouse-connect see it, over a real store process."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
import time
import uuid
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

import clickhouse_connect
import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode()


class Curl:
    """Sends plain HTTP requests, as curl would."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)

    def __call__(
        self,
        body: bytes = b"",
        *,
        method: str = "POST",
        path: str = "/",
        headers: dict[str, str] | None = None,
        **parameters: str,
    ) -> Answer:
        connection = http.client.HTTPConnection(self._parts.hostname or "", self._parts.port, timeout=90)
        query = "?" + urlencode(parameters) if parameters else ""
        connection.request(method, path + query, body or None, headers or {})
        answer = Answer(connection.getresponse())
        connection.close()
        return answer


@pytest.fixture
def curl(store_url: str) -> Curl:
    return Curl(store_url)


@pytest.fixture
def table(curl: Curl) -> str:
    """A table (a UInt32, b String) of this test's own."""
    name = "t" + uuid.uuid4().hex
    created = curl(f"CREATE TABLE {name} (a UInt32, b LowCardinality(String)) ENGINE = MergeTree ORDER BY a".encode())
    assert created.status == 200
    return name


@pytest.fixture(params=["none", "lz4", "zstd", "gzip"])
def client(request: pytest.FixtureRequest, store_url: str) -> Iterator[Client]:
    """clickhouse-connect as its users open it, with each of its compressions."""
    parts = urlsplit(store_url)
    compress = False if request.param == "none" else request.param
    client = clickhouse_connect.get_client(host=parts.hostname, port=parts.port or 0, compress=compress)
    yield client
    client.close()


def test_answers_pings(curl: Curl) -> None:
    answer = curl(method="GET", path="/ping")

    assert (answer.status, answer.text) == (200, "Ok.\n")


def test_query_in_the_url_and_in_the_body(curl: Curl) -> None:
    assert curl(method="GET", query="SELECT 1").text == "1\n"
    assert curl(b"SELECT 2").text == "2\n"
    assert curl(b"3", query="SELECT").text == "3\n"


def test_headers_say_what_was_done(curl: Curl) -> None:
    answer = curl(b"SELECT 1 FORMAT JSON", query_id="mine")

    assert answer.headers["X-ClickHouse-Query-Id"] == "mine"
    assert answer.headers["X-ClickHouse-Format"] == "JSON"
    assert answer.headers["Content-Type"].startswith("application/json")
    assert set(json.loads(answer.headers["X-ClickHouse-Summary"])) == {"read_rows", "written_rows", "elapsed_ns"}


def test_parameters_are_bound_not_pasted(curl: Curl) -> None:
    answer = curl(b"SELECT {x:String} AS x FORMAT JSONEachRow", param_x="' OR 1=1 --")

    assert json.loads(answer.text) == {"x": "' OR 1=1 --"}


@pytest.mark.parametrize(
    "data",
    [
        ("FORMAT CSV", b'1,"x"\n2,y\n'),
        ("FORMAT JSONEachRow", b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n'),
        ("VALUES", b"(1, 'x'), (2, 'y')"),
        ("SETTINGS max_insert_block_size = 1000 FORMAT TSV", b"1\tx\n2\ty\n"),
    ],
)
@pytest.mark.parametrize("place", ["url", "body"])
def test_inserts_data_of_each_format(curl: Curl, table: str, data: tuple[str, bytes], place: str) -> None:
    insert = f"INSERT INTO {table} {data[0]}"

    inserted = curl(data[1], query=insert) if place == "url" else curl(f"{insert}\n".encode() + data[1])

    assert (inserted.status, inserted.text) == (200, "")
    assert json.loads(inserted.headers["X-ClickHouse-Summary"])["written_rows"] == "2"
    assert curl(f"SELECT * FROM {table} ORDER BY a".encode()).text == "1\tx\n2\ty\n"


def test_inserts_a_compressed_body(curl: Curl, table: str) -> None:
    rows = b"".join(b"%d,word\n" % number for number in range(100_000))

    curl(gzip.compress(rows), query=f"INSERT INTO {table} FORMAT CSV", headers={"Content-Encoding": "gzip"})

    assert curl(f"SELECT count(), sum(a) FROM {table}".encode()).text == f"100000\t{sum(range(100_000))}\n"


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [
        ("SELECT nope", 400, "47"),
        ("SELECT * FROM nope", 404, "60"),
        ("selec 1", 400, "62"),
        ("SELECT file('/etc/hostname')", 403, "497"),
        ("SET max_threads = 1", 501, "48"),
        ("SELECT throwIf(1)", 500, "395"),
    ],
)
def test_errors_come_as_clickhouse_gives_them(curl: Curl, sql: str, status: int, code: str) -> None:
    answer = curl(sql.encode())

    assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (status, code)
    assert answer.text.startswith(f"Code: {code}. DB::Exception: ")


def test_bad_data_insert_nothing(curl: Curl, table: str) -> None:
    answer = curl(b"1,x\nnot a number,y\n", query=f"INSERT INTO {table} FORMAT CSV")

    assert answer.status >= 400
    assert curl(f"SELECT count() FROM {table}".encode()).text == "0\n"


def test_get_cannot_write(curl: Curl, table: str) -> None:
    answer = curl(method="GET", query=f"DROP TABLE {table}")

    assert answer.status == 403
    assert curl(f"EXISTS TABLE {table}".encode()).text == "1\n"


@pytest.mark.parametrize("headers", [{"Origin": "https://elsewhere.example"}, {"Host": "elsewhere.example"}])
def test_pages_of_other_sites_are_refused(curl: Curl, headers: dict[str, str]) -> None:
    assert curl(b"SELECT 1", headers=headers).status == 403


def test_limits_may_be_tightened_but_not_loosened(curl: Curl) -> None:
    names = b"SELECT getSetting('max_threads'), getSetting('max_execution_time')"

    assert curl(names).text == "2\t60\n"
    assert curl(names, max_threads="1", max_execution_time="600").text == "1\t60\n"


def test_a_query_that_takes_too_long_is_stopped(curl: Curl) -> None:
    answer = curl(b"SELECT count() FROM numbers(1000000000000) WHERE NOT ignore(number)", max_execution_time="1")

    assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (408, "159")


def test_unknown_settings_are_refused(curl: Curl) -> None:
    assert curl(b"SELECT 1", allow_everything="1").headers["X-ClickHouse-Exception-Code"] == "115"


def test_settings_of_one_request_do_not_reach_the_next(curl: Curl) -> None:
    curl(b"SELECT 1", max_block_size="7")

    assert curl(b"SELECT getSetting('max_block_size')").text != "7\n"


def test_a_slow_query_holds_up_no_insert(curl: Curl, table: str) -> None:
    ended: list[str] = []

    def run_slowly() -> None:
        curl(b"SELECT count() FROM numbers(1000000000000) WHERE NOT ignore(number)", max_execution_time="5")
        ended.append("query")

    slow = threading.Thread(target=run_slowly)
    slow.start()
    while curl(b"SELECT count() FROM system.processes WHERE query LIKE '%1000000000000) WHERE NOT%'").text == "1\n":
        time.sleep(0.05)  # only the asking query itself so far
    curl(b"1,x\n", query=f"INSERT INTO {table} FORMAT CSV")
    ended.append("insert")
    slow.join()

    assert ended == ["insert", "query"]


def test_serves_clickhouse_connect(client: Client) -> None:
    name = "t" + uuid.uuid4().hex
    client.command(f"CREATE TABLE {name} (a UInt32, s LowCardinality(String), l Array(UInt32)) ENGINE = Memory")

    client.insert(name, [[1, "x", [1, 2]], [2, "y", []]], column_names=["a", "s", "l"])
    client.insert_arrow(name, pa.table({"a": [3], "s": ["z"], "l": pa.array([[3]], pa.list_(pa.uint32()))}))

    selected = client.query(f"SELECT * FROM {name} WHERE a >= {{a:UInt32}} ORDER BY a", parameters={"a": 2})
    assert selected.result_rows == [(2, "y", []), (3, "z", [3])]
    assert client.query_arrow(f"SELECT s FROM {name} ORDER BY a")["s"].to_pylist() == ["x", "y", "z"]
    assert client.command(f"SELECT count() FROM {name}") == 3
    assert client.query(f"SELECT a, l FROM {name} LIMIT 0").column_names == ("a", "l")


def test_clickhouse_connect_learns_the_code_of_an_error(client: Client) -> None:
    with pytest.raises(DatabaseError) as caught:
        client.query("SELECT * FROM nope")

    assert caught.value.code == 60
