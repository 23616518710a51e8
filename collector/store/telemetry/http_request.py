"""What a request to ClickHouse's HTTP interface asks for, apart from its data."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from collector.store.telemetry.http_body import BadRequestError
from collector.store.telemetry.statement import RefusedStatementError

UNKNOWN_SETTING = 115
# Parameters of the HTTP interface itself. Those about progress, sessions and caching change no result here.
TRANSPORT = frozenset(
    {
        "query",
        "database",
        "default_format",
        "query_id",
        "user",
        "password",
        "quota_key",
        "role",
        "stacktrace",
        "readonly",
    }
    | {"session_id", "session_timeout", "session_check", "close_session", "buffer_size", "wait_end_of_query"}
    | {"send_progress_in_http_headers", "http_headers_progress_interval_ms", "enable_http_compression"}
    | {"cancel_http_readonly_queries_on_client_close", "client_protocol_version", "add_http_cors_header"}
)
UNSUPPORTED = frozenset({"compress", "decompress"})  # ClickHouse's own framing; Content-Encoding is served instead
_SETTING = re.compile(r"(output_format|input_format|format|date_time)_\w+")
SETTINGS = frozenset(
    {"max_threads", "max_execution_time", "max_memory_usage", "max_result_bytes", "max_result_rows"}
    | {"max_block_size", "max_insert_block_size", "result_overflow_mode", "optimize_on_insert", "session_timezone"}
    | {"cast_string_to_dynamic_use_inference", "extremes", "final", "limit", "offset", "async_insert"}
    | {"max_partitions_per_insert_block"}
    | {"wait_for_async_insert", "insert_deduplicate", "do_not_merge_across_partitions_select_final"}
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parts of a request that are not data."""

    query: str
    database: str
    default_format: str
    query_id: str
    settings: dict[str, str]
    parameters: dict[str, str]


def read_parameters(query_string: bytes, form: Mapping[str, str], headers: Mapping[str, str]) -> Wanted:
    """Return what the URL, the form and the headers ask for; the form wins.

    Raises:
        BadRequestError: the URL is not UTF-8, or asks for ClickHouse's own compression.
        RefusedStatementError: a setting that the store does not let a client choose.
    """
    try:
        given = dict(parse_qsl(query_string.decode(), keep_blank_values=True, errors="strict")) | dict(form)
    except UnicodeDecodeError as error:
        raise BadRequestError(400, "the URL is not UTF-8") from error
    settings, parameters = {}, {}
    for name, value in given.items():
        if name.startswith("param_"):
            parameters[name.removeprefix("param_")] = value
        elif name in UNSUPPORTED:
            if value not in ("", "0", "false"):
                raise BadRequestError(400, f"{name}=1 is not served; use Content-Encoding")
        elif name in SETTINGS or _SETTING.fullmatch(name):
            settings[name] = value
        elif name not in TRANSPORT:
            raise RefusedStatementError(UNKNOWN_SETTING, f"Setting {name} cannot be chosen here. (UNKNOWN_SETTING)")
    return Wanted(
        query=given.get("query", ""),
        database=given.get("database") or headers.get("x-clickhouse-database", ""),
        default_format=given.get("default_format") or headers.get("x-clickhouse-format", "") or "TabSeparated",
        query_id=given.get("query_id", ""),
        settings=settings,
        parameters=parameters,
    )


def is_loopback(host: str) -> bool:
    """Return whether `host`, a name or an address, is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_strangers(headers: Mapping[str, str]) -> None:
    """Return if the request was not made by a web page of another site.

    A browser on this machine can reach loopback for any page it shows. Such a request names the page in Origin, or,
    after its name was rebound to 127.0.0.1, a foreign Host.

    Raises:
        BadRequestError: it was.
    """
    host = urlsplit("//" + headers.get("host", "localhost")).hostname or ""
    origin = headers.get("origin", "")
    if not is_loopback(host) or (origin and not is_loopback(urlsplit(origin).hostname or "")):
        raise BadRequestError(403, "only programs and pages of this machine are served")
