from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import lz4.frame  # type: ignore[import-untyped]  # ships no types
import pytest
import zstandard

from collector.store.telemetry.http_body import BadRequestError, Receive, chunks, form_fields


def arriving(*pieces: bytes) -> Receive:
    """An ASGI receive function that hands out these pieces."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    waiting = iter(messages)

    async def receive() -> Mapping[str, Any]:
        return next(waiting)

    return receive


async def read(receive: Receive, encoding: str, max_bytes: int = 1_000_000) -> bytes:
    return b"".join([piece async for piece in chunks(receive, encoding, max_bytes)])


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("", bytes),
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("lz4", lz4.frame.compress),
        ("zstd", zstandard.compress),
    ],
)
async def test_gives_back_what_was_compressed(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    once, again = b"first part " * 1000, b"second part " * 1000
    body = compress(once) if encoding == "deflate" else compress(once) + compress(again)
    expected = once if encoding == "deflate" else once + again

    pieces = [body[start : start + 100] for start in range(0, len(body), 100)]

    assert await read(arriving(*pieces), encoding) == expected


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "lz4", "zstd"])
async def test_damaged_bodies_are_a_bad_request(encoding: str) -> None:
    with pytest.raises(BadRequestError, match=encoding) as caught:
        await read(arriving(b"this was never compressed"), encoding)

    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("lz4", lz4.frame.compress), ("zstd", zstandard.compress)],
)
async def test_bodies_cut_short_are_a_bad_request(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    with pytest.raises(BadRequestError, match="ends too early"):
        await read(arriving(compress(bytes(range(256)) * 1000)[:-2]), encoding)


async def test_unknown_encodings_are_refused() -> None:
    with pytest.raises(BadRequestError, match="'br' is not served"):
        await read(arriving(b"x"), "br")


async def test_a_small_body_that_expands_beyond_the_limit_is_refused() -> None:
    with pytest.raises(BadRequestError, match="longer than") as caught:
        await read(arriving(gzip.compress(b"0" * 100_000)), "gzip", max_bytes=50_000)

    assert caught.value.status == 413


async def test_a_client_that_leaves_early_inserts_nothing() -> None:
    async def receive() -> Mapping[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(BadRequestError, match="left"):
        await read(receive, "")


def test_reads_the_fields_of_a_form() -> None:
    body = (
        b'--B\r\nContent-Disposition: form-data; name="query"\r\n\r\nSELECT {x:String}\nFORMAT CSV\r\n'
        b'--B\r\nContent-Disposition: form-data; name="param_x"\r\n\r\n\xc3\xa4\r\n--B--\r\n'
    )

    fields = form_fields("multipart/form-data; boundary=B", body)

    assert fields == {"query": "SELECT {x:String}\nFORMAT CSV", "param_x": "ä"}


def test_external_tables_are_refused() -> None:
    body = b'--B\r\nContent-Disposition: form-data; name="t"; filename="t"\r\n\r\n1\r\n--B--\r\n'

    with pytest.raises(BadRequestError, match="external tables"):
        form_fields("multipart/form-data; boundary=B", body)
