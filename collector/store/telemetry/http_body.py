"""The bodies of HTTP requests: decompressed as they arrive, and forms taken apart."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from email.parser import BytesParser
from typing import Any

import lz4.frame  # type: ignore[import-untyped]  # ships no types
import zstandard

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class BadRequestError(Exception):
    """A request that breaks HTTP's or ClickHouse's rules; `status` is the HTTP status of the reply."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Members:
    """Decompresses a series of whole frames (gzip members, lz4 frames), one behind the other."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._current = make()

    def decompress(self, data: bytes) -> bytes:
        """Return what `data` adds."""
        parts = [self._current.decompress(data)]
        while self._current.eof and self._current.unused_data:
            rest = self._current.unused_data
            self._current = self._make()
            parts.append(self._current.decompress(rest))
        return b"".join(parts)

    @property
    def is_whole(self) -> bool:
        """Return whether the data so far end with a frame's end."""
        return bool(self._current.eof)


def _decompressor(encoding: str) -> _Members | None:
    match encoding:
        case "" | "identity":
            return None
        case "gzip":
            return _Members(lambda: zlib.decompressobj(wbits=31))
        case "deflate":
            return _Members(zlib.decompressobj)
        case "lz4":
            return _Members(lz4.frame.LZ4FrameDecompressor)
        case "zstd":
            return _Members(lambda: zstandard.ZstdDecompressor().decompressobj())
    raise BadRequestError(415, f"Content-Encoding {encoding!r} is not served; use gzip, deflate, lz4, zstd or none")


async def chunks(receive: Receive, encoding: str, max_bytes: int) -> AsyncIterator[bytes]:
    """Yield the body, decompressed.

    Raises:
        BadRequestError: it is longer than max_bytes, damaged, or the client left before its end.
    """
    decompressor = _decompressor(encoding)
    total = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequestError(400, "the client left before the end of its request")
        piece = message.get("body", b"")
        more = message.get("more_body", False)
        if piece and decompressor is not None:
            try:
                piece = decompressor.decompress(piece)
            except (zlib.error, RuntimeError, zstandard.ZstdError) as error:
                raise BadRequestError(400, f"the body is not valid {encoding}: {error}") from error
        total += len(piece)
        if total > max_bytes:
            raise BadRequestError(413, f"the body is longer than {max_bytes} bytes")
        if piece:
            yield piece
    if total and decompressor is not None and not decompressor.is_whole:
        raise BadRequestError(400, f"the {encoding} body ends too early")


def form_fields(content_type: str, body: bytes) -> dict[str, str]:
    """Return the fields of a multipart/form-data body.

    Raises:
        BadRequestError: it is none, or brings a file (ClickHouse's external tables are not served).
    """
    message = BytesParser().parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    if not message.is_multipart():
        raise BadRequestError(400, "the form is damaged")
    fields = {}
    for part in message.get_payload():
        name = part.get_param("name", header="content-disposition")  # type: ignore[union-attr]  # parts are messages
        if part.get_filename() is not None or not isinstance(name, str):  # type: ignore[union-attr]
            raise BadRequestError(400, "external tables are not served")
        fields[name] = part.get_payload(decode=True).decode()  # type: ignore[union-attr]
    return fields
