"""One bidirectional call to a collector, with the options of its channel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import grpc

from flightwatch.forward.unacked import UnackedFrames
from flightwatch.wire import flightwatch_pb2 as wire

METHOD = "/flightwatch.wire.Telemetry/Stream"
WELCOME_SECONDS = 15.0  # a collector that takes longer to say welcome is not answering
# Collectors allow pings every 10 s (strictly below these 30 s), else they answer too_many_pings.
CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_send_message_length", 1 << 20),
    ("grpc.max_receive_message_length", 1 << 20),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),  # collectors stand inside the cluster
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel inherits the old one's backoff
)
# Wire tags, so that a kept frame is wrapped without being parsed again: ForwarderMessage.frame and Frame.sent_unix_ns.
_FRAME_TAG = bytes([wire.ForwarderMessage.FRAME_FIELD_NUMBER << 3 | 2])
_SENT_TAG = bytes([wire.Frame.SENT_UNIX_NS_FIELD_NUMBER << 3 | 1])


class Stream:
    """One call: a generator that grpc's sending thread draws from, and the iterator of answers."""

    def __init__(
        self,
        channel: grpc.Channel,
        hello: wire.Hello,
        unacked: UnackedFrames,
        greet: Callable[[], Iterator[bytes]],
    ) -> None:
        self.welcomed = threading.Event()
        self._hello = hello
        self._unacked = unacked
        self._greet = greet
        self._ended = False
        call = channel.stream_stream(METHOD, None, wire.CollectorMessage.FromString)
        self._call = call(self._requests())

    def messages(self) -> Iterator[wire.CollectorMessage]:
        """Yield what the collector says until the stream ends; raises grpc.RpcError when it ends badly."""
        watchdog = threading.Timer(WELCOME_SECONDS, self._cancel_unwelcomed)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield from self._call
        finally:
            watchdog.cancel()

    def welcome(self) -> None:
        """Let the frames go: the collector has said welcome."""
        with self._unacked.changed:
            self.welcomed.set()
            self._unacked.changed.notify_all()

    def cancel(self) -> None:
        """Break the call off; `messages` ends."""
        self._call.cancel()

    def end(self) -> None:
        """Release grpc's sending thread, which waits for frames."""
        with self._unacked.changed:
            self._ended = True
            self._unacked.changed.notify_all()
        self._call.cancel()

    def _cancel_unwelcomed(self) -> None:
        if not self.welcomed.is_set():
            self._call.cancel()

    def _requests(self) -> Iterator[bytes]:
        yield wire.ForwarderMessage(hello=self._hello).SerializeToString()
        with self._unacked.changed:
            self._unacked.changed.wait_for(lambda: self._ended or self.welcomed.is_set())
        if self._ended:
            return
        for body in self._greet():
            if self._ended:
                return
            yield _envelope(body)
        while True:
            with self._unacked.changed:
                kept = None
                while not self._ended and (kept := self._unacked.next_unsent()) is None:
                    self._unacked.changed.wait()
            if kept is None:
                return
            yield _envelope(kept.body)


def _envelope(body: bytes) -> bytes:
    """Return ForwarderMessage(frame=body), stamped with the present time: of two values of a field the last counts."""
    sent = _SENT_TAG + time.time_ns().to_bytes(8, "little")
    length = len(body) + len(sent)
    varint = bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    varint.append(length)
    return b"".join((_FRAME_TAG, varint, body, sent))
