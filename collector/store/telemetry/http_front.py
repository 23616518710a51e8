"""ClickHouse's HTTP interface in front of the embedded engine, as far as clickhouse-connect and curl use it.

Not served: sessions, users, external tables, streaming of results (they are built whole, up to MAX_RESULT_BYTES) and
ClickHouse's own compression. Readers and writers have threads of their own: no query, however slow, holds up an insert.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from collector.store.telemetry.engine import Answer, Engine, EngineError
from collector.store.telemetry.http_body import BadRequestError, Receive, chunks, form_fields
from collector.store.telemetry.http_request import Wanted, read_parameters, refuse_strangers
from collector.store.telemetry.statement import (
    MAX_INSERT_HEAD_BYTES,
    RefusedStatementError,
    Statement,
    read_statement,
)

logger = logging.getLogger(__name__)

Send = Callable[[Mapping[str, Any]], Awaitable[None]]

READERS = 4
WRITERS = 4
MAX_STATEMENT_BYTES = 16 << 20
MAX_DATA_BYTES = 2 << 30
READONLY = 164
# ClickHouse's own mapping (src/Server/HTTP/exceptionCodeToHTTPStatus.cpp) of the codes that users meet; others are 500.
STATUS_OF_CODE = {
    **dict.fromkeys((6, 26, 27, 36, 38, 41, 42, 43, 46, 47, 50, 53, 62, 70, 72, 115, 117, 386, 456, 457), 400),
    **dict.fromkeys((16, 60, 81), 404),
    **dict.fromkeys((164, 497), 403),
    48: 501,
    159: 408,
}
CONTENT_TYPES = {
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "JSON": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "JSONCompact": "application/json; charset=UTF-8",
}
TEXT = "text/plain; charset=UTF-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back over HTTP."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class HttpFront:
    """An ASGI application that serves `engine`. Data of inserts pass through files in `upload_dir`."""

    def __init__(self, engine: Engine, upload_dir: Path) -> None:
        self._engine = engine
        self._upload_dir = upload_dir
        self._readers = ThreadPoolExecutor(READERS, "read")
        self._writers = ThreadPoolExecutor(WRITERS, "write")

    def close(self) -> None:
        """Wait until no statement runs."""
        self._readers.shutdown()
        self._writers.shutdown()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            reply = await self._reply(scope, headers, receive)
        except BadRequestError as error:
            reply = Reply(error.status, f"{error}\n".encode(), {"Content-Type": TEXT})
        except RefusedStatementError as error:
            reply = self._failure(error.code, f"Code: {error.code}. DB::Exception: {error}")
        except EngineError as error:
            reply = self._failure(error.code, str(error))
        except Exception:
            logger.exception("request failed")
            reply = self._failure(1002, "Code: 1002. DB::Exception: internal error of flightwatch's store, see its log")
        await _send(send, reply, has_body=scope["method"] != "HEAD")

    async def _reply(self, scope: Mapping[str, Any], headers: Mapping[str, str], receive: Receive) -> Reply:
        refuse_strangers(headers)
        if scope["path"] in ("/ping", "/replicas_status"):
            return Reply(200, b"Ok.\n", {"Content-Type": TEXT})
        if scope["path"] != "/":
            raise BadRequestError(404, f"There is no handle {scope['path']}. Use / or /ping.")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise BadRequestError(405, f"{scope['method']} is not served; use GET or POST")
        body = chunks(receive, headers.get("content-encoding", "").lower(), MAX_DATA_BYTES)
        form: dict[str, str] = {}
        content_type = headers.get("content-type", "")
        if content_type.startswith("multipart/form-data"):
            form = form_fields(content_type, await _gather(body, b"", MAX_STATEMENT_BYTES))
        wanted = read_parameters(scope["query_string"], form, headers)
        if not wanted.query and scope["method"] != "POST":
            return Reply(200, b"Ok.\n", {"Content-Type": TEXT})
        return await self._run(wanted, body, may_write=scope["method"] == "POST")

    async def _run(self, wanted: Wanted, body: AsyncIterator[bytes], *, may_write: bool) -> Reply:
        text, statement = await _find_statement(wanted.query, body)
        if statement.is_reading:
            output_format = statement.format or wanted.default_format
            call = partial(
                self._engine.read,
                statement.sql,
                output_format=output_format,
                database=wanted.database,
                settings=wanted.settings,
                parameters=wanted.parameters,
            )
            return self._success(wanted, await _on(self._readers, call), output_format)
        if not may_write:
            raise RefusedStatementError(
                READONLY, "Cannot execute query in readonly mode, which GET implies. (READONLY)"
            )
        if statement.data_offset is not None:
            return self._success(wanted, await self._insert(wanted, statement, text, body))
        write = partial(
            self._engine.write,
            statement.sql,
            database=wanted.database,
            settings=wanted.settings,
            parameters=wanted.parameters,
        )
        return self._success(wanted, await _on(self._writers, write))

    async def _insert(self, wanted: Wanted, statement: Statement, text: bytes, body: AsyncIterator[bytes]) -> Answer:
        with tempfile.NamedTemporaryFile(dir=self._upload_dir, prefix="insert-") as file:
            file.write(text[statement.data_offset :])
            # Written by the event loop: it goes to the page cache at some GB/s, a hop to a thread would cost more.
            async for piece in body:
                file.write(piece)
            file.flush()
            call = partial(
                self._engine.insert_file,
                statement,
                Path(file.name),
                database=wanted.database,
                settings=wanted.settings,
            )
            return await _on(self._writers, call)

    def _success(self, wanted: Wanted, answer: Answer, output_format: str = "") -> Reply:
        summary = {
            "read_rows": str(answer.rows_read),
            "written_rows": str(answer.rows_written),
            "elapsed_ns": str(int(answer.seconds * 1e9)),
        }
        headers = self._headers(wanted.query_id)
        headers["X-ClickHouse-Summary"] = json.dumps(summary)
        headers["Content-Type"] = (
            CONTENT_TYPES.get(output_format, "application/octet-stream") if output_format else TEXT
        )
        if output_format:
            headers["X-ClickHouse-Format"] = output_format
        return Reply(200, answer.body, headers)

    def _failure(self, code: int, text: str) -> Reply:
        headers = {**self._headers(""), "X-ClickHouse-Exception-Code": str(code), "Content-Type": TEXT}
        body = f"{text.strip()} (version {self._engine.version})\n"
        return Reply(STATUS_OF_CODE.get(code, 500), body.encode(), headers)

    def _headers(self, query_id: str) -> dict[str, str]:
        return {
            "X-ClickHouse-Server-Display-Name": "flightwatch",
            "X-ClickHouse-Query-Id": query_id if query_id.isprintable() and query_id.isascii() else "",
            "X-ClickHouse-Timezone": self._engine.timezone,
        }


async def _find_statement(query: str, body: AsyncIterator[bytes]) -> tuple[bytes, Statement]:
    """Return the statement, and the text read so far; as in ClickHouse, URL and body are one text."""
    text = query.encode() + b"\n" if query else b""
    text = await _gather(body, text, MAX_INSERT_HEAD_BYTES, must_end=False)
    try:
        statement = read_statement(text)
    except RefusedStatementError:
        statement = None
    if statement is None or statement.data_offset is None:
        text = await _gather(body, text, MAX_STATEMENT_BYTES)
        statement = read_statement(text)
    return text, statement


async def _gather(body: AsyncIterator[bytes], text: bytes, max_bytes: int, *, must_end: bool = True) -> bytes:
    parts, length = [text], len(text)
    while length < max_bytes or must_end:
        try:
            piece = await anext(body)
        except StopAsyncIteration:
            break
        parts.append(piece)
        length += len(piece)
        if must_end and length > max_bytes:
            raise BadRequestError(413, f"the statement is longer than {max_bytes} bytes")
    return b"".join(parts)


async def _on(pool: ThreadPoolExecutor, call: Callable[[], Answer]) -> Answer:
    return await asyncio.get_running_loop().run_in_executor(pool, call)


async def _send(send: Send, reply: Reply, *, has_body: bool) -> None:
    headers = {**reply.headers, "Content-Length": str(len(reply.body))}
    if not headers.get("X-ClickHouse-Query-Id"):
        headers["X-ClickHouse-Query-Id"] = str(uuid.uuid4())
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": pairs})
    await send({"type": "http.response.body", "body": reply.body if has_body else b""})
