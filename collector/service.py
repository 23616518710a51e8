"""The gRPC edge: one bidirectional stream per forwarder. Reads frames, hands them on, acknowledges what is on disk."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from collector.batcher import Batcher
from collector.decode import check_hello, decode
from collector.epochs import EpochBook
from collector.errors import MalformedBatchError
from flightwatch.wire import flightwatch_pb2 as wire

logger = logging.getLogger(__name__)

SERVICE_NAME = "flightwatch.wire.Telemetry"
MAX_MESSAGE_BYTES = 1 << 20
FLUSH_INTERVAL_MS = 500
# 10,000 streams that came back over 30 s all connected, 1,000 at once just so (reliability.md R14): 3 ms for each.
WINDOW_MS_PER_STREAM = 3
MIN_WINDOW_MS = 500
MAX_WINDOW_MS = 60_000
MAX_STREAMS = 20_000  # 47 KB each: 1 GB
MAX_UNACKED_FRAMES = 256  # of one stream
# A client drops trailers above 8 KiB, each character may take 12 bytes there, and another status would have the frame
# sent again for ever.
MAX_DETAIL_CHARACTERS = 500
REFUSED_FRAME_KEY = "flightwatch-frame"  # trailing metadata: the number of the frame that was refused

_Unacked = tuple[wire.Ack, asyncio.Future[None]]


class TelemetryService:
    """Serves all streams. A malformed message ends its own stream and no other."""

    def __init__(self, batcher: Batcher, *, name: str, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._batcher = batcher
        self._name = name
        self._clock_ns = clock_ns
        self._readers: set[asyncio.Task[None]] = set()
        self._draining = False

    @property
    def n_streams(self) -> int:
        """Return how many forwarders are connected."""
        return len(self._readers)

    def handler(self) -> Any:
        """Return the generic handler. Messages come as bytes, so that a broken one gets our own answer, not grpc's."""
        method = grpc.stream_stream_rpc_method_handler(self.stream)
        return grpc.method_handlers_generic_handler(SERVICE_NAME, {"Stream": method})

    def drain(self) -> None:
        """Read no more; streams end by themselves once what they sent is acknowledged."""
        self._draining = True
        for reader in self._readers:
            reader.cancel()

    async def stream(self, _requests: Any, context: Any) -> None:
        """Serve one forwarder until it leaves, we drain, or it sends something malformed."""
        if self._draining or len(self._readers) >= MAX_STREAMS:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{self._name} takes no more streams")
        unacked: asyncio.Queue[_Unacked | None] = asyncio.Queue(MAX_UNACKED_FRAMES)
        reader = asyncio.ensure_future(self._read_all(context, unacked))
        acker = asyncio.ensure_future(self._acknowledge(context, unacked))
        self._readers.add(reader)
        try:
            # cancelled by `drain`: that is no error, and what was read is still acknowledged
            await asyncio.wait({reader, acker}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not reader.cancelled():
                reader.result()
            if reader.done() and not acker.done():
                await unacked.put(None)
            await acker
        except MalformedBatchError as error:
            logger.warning("refused a stream from %s: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:MAX_DETAIL_CHARACTERS])
        finally:
            self._readers.discard(reader)
            for task in (reader, acker):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _read_all(self, context: Any, unacked: asyncio.Queue[_Unacked | None]) -> None:
        hello = _parse(await context.read())
        if hello is None:
            return
        if hello.WhichOneof("body") != "hello":
            raise MalformedBatchError("hello", "is missing: a stream begins with it")
        check_hello(hello.hello)
        await context.write(wire.CollectorMessage(welcome=self._welcome()).SerializeToString())
        book = EpochBook()
        while (message := _parse(await context.read())) is not None:
            if message.WhichOneof("body") != "frame":
                raise MalformedBatchError(message.WhichOneof("body") or "body", "a frame was due")
            received_ns = self._clock_ns()
            try:
                decoded = decode(message.frame, book, now_ns=received_ns)
            except MalformedBatchError:
                context.set_trailing_metadata(((REFUSED_FRAME_KEY, str(message.frame.frame)),))
                raise
            saved = await self._batcher.add(decoded, hello.hello.node)
            ack = wire.Ack(frame=decoded.number, frame_sent_unix_ns=decoded.sent_unix_ns, received_unix_ns=received_ns)
            await unacked.put((ack, saved))

    async def _acknowledge(self, context: Any, unacked: asyncio.Queue[_Unacked | None]) -> None:
        while (waiting := await unacked.get()) is not None:
            ack, saved = waiting
            try:
                await saved
            except MalformedBatchError:
                context.set_trailing_metadata(((REFUSED_FRAME_KEY, str(ack.frame)),))
                raise
            ack.answered_unix_ns = self._clock_ns()
            await context.write(wire.CollectorMessage(ack=ack).SerializeToString())

    def _welcome(self) -> wire.Welcome:
        window_ms = min(max(WINDOW_MS_PER_STREAM * self.n_streams, MIN_WINDOW_MS), MAX_WINDOW_MS)
        return wire.Welcome(
            collector=self._name,
            max_message_bytes=MAX_MESSAGE_BYTES,
            flush_interval_ms=FLUSH_INTERVAL_MS,
            reconnect_window_ms=window_ms,
        )


def _parse(message: Any) -> wire.ForwarderMessage | None:
    """Return the message, None at the end of the stream."""
    if not isinstance(message, bytes):  # grpc.aio.EOF
        return None
    try:
        parsed: wire.ForwarderMessage = wire.ForwarderMessage.FromString(message)
    except DecodeError as error:
        raise MalformedBatchError("message", "is no ForwarderMessage") from error
    return parsed
