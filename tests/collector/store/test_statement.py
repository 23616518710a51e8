from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.store.telemetry.statement import RefusedStatementError, read_statement


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", None),
        ("SELECT 1 FORMAT Native", "Native"),
        ("select 1 format JSONEachRow settings a = 1", "JSONEachRow"),
        ("SELECT format('{}', 1)", None),
        ("SELECT 'x FORMAT CSV'", None),
        ("SELECT 1 -- FORMAT CSV", None),
        ("SELECT 1\n FORMAT Arrow;", "Arrow"),
    ],
)
def test_finds_the_output_format(sql: str, expected: str | None) -> None:
    assert read_statement(sql.encode()).format == expected


@pytest.mark.parametrize(
    "verb", ["SELECT 1", "WITH 1 AS x SELECT x", "SHOW TABLES", "DESCRIBE t", "(SELECT 1)", "EXISTS t"]
)
def test_queries_are_reading(verb: str) -> None:
    assert read_statement(verb.encode()).is_reading


@pytest.mark.parametrize("sql", ["CREATE TABLE t (a Int8) ENGINE = Memory", "DROP TABLE t", "INSERT INTO t SELECT 1"])
def test_changes_are_not_reading(sql: str) -> None:
    assert not read_statement(sql.encode()).is_reading


@given(data=st.binary(max_size=200), columns=st.sampled_from(["", " (a, b)", ' (`format`, "values")']))
def test_data_of_an_insert_are_left_as_they_came(data: bytes, columns: str) -> None:
    text = f"INSERT INTO t{columns} FORMAT Native\n".encode() + data

    statement = read_statement(text)

    assert statement.data_offset is not None
    assert text[statement.data_offset :] == data
    assert statement.format == "Native"
    assert statement.sql.strip() == f"INSERT INTO t{columns}"


def test_values_are_data() -> None:
    text = b"INSERT INTO t VALUES (1, 'a;b')"

    statement = read_statement(text)

    assert (statement.format, text[statement.data_offset :]) == ("Values", b" (1, 'a;b')")


def test_settings_of_an_insert_are_kept_apart() -> None:
    statement = read_statement(b"INSERT INTO t (a) SETTINGS x = 1 FORMAT CSV\n1")

    assert (statement.sql.strip(), statement.settings.strip()) == ("INSERT INTO t (a)", "SETTINGS x = 1")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT file('/etc/passwd')",
        "SELECT * FROM `file`('/etc/passwd')",
        "SELECT * FROM \"url\" ('http://x')",
        "SELECT 1 INTO OUTFILE '/tmp/x'",
        "INSERT INTO FUNCTION file('/tmp/x') SELECT 1",
        "INSERT INTO t SELECT * FROM url('http://x')",
        "INSERT INTO t FROM INFILE '/etc/passwd' FORMAT LineAsString",
        "SELECT $a$ ' $a$, file('/etc/passwd'), ' '",
        "SELECT ‘ ' ’, file('/etc/passwd'), ' '",
        "SELECT 1 /* ' */, file('/etc/passwd') /* ' */",
        "SELECT 1 SETTINGS max_memory_usage = 0",
        "SYSTEM SHUTDOWN",
    ],
)
def test_refuses_what_reaches_beyond_the_store(sql: str) -> None:
    with pytest.raises(RefusedStatementError, match="Not enough privileges"):
        read_statement(sql.encode())


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "selec 1",
        "SELECT 1; DROP TABLE t",
        "SELECT 'unclosed",
        "SELECT /* /* */ 1 */",
        "SELECT /* unclosed",
        "INSERT INTO t",
        "INSERT INTO t FORMAT",
    ],
)
def test_refuses_what_it_cannot_read(sql: str) -> None:
    with pytest.raises(RefusedStatementError, match="Syntax error"):
        read_statement(sql.encode())


def test_words_inside_strings_are_not_refused() -> None:
    statement = read_statement(b"SELECT 'file(1); INTO OUTFILE' AS file, file = 1 FROM t;")

    assert statement.sql == "SELECT 'file(1); INTO OUTFILE' AS file, file = 1 FROM t"
