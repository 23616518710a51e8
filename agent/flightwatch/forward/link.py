"""The one connection of a forwarder to a collector: sends frames, keeps them until acknowledged, and never gives up."""

from __future__ import annotations

import hashlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

import grpc

from flightwatch.forward.backoff import Backoff
from flightwatch.forward.stream import CHANNEL_OPTIONS, Stream
from flightwatch.forward.unacked import UnackedFrames
from flightwatch.wire import flightwatch_pb2 as wire

logger = logging.getLogger(__name__)

PROTOCOL = 1
REFUSED_FRAME_KEY = "flightwatch-frame"  # trailing metadata: number of the frame that the collector refused
DENIED_SECONDS = 300.0  # a token may be mended meanwhile; hammering helps nobody
_DENIED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class Link:
    """Delivers frames at least once, in order, to whichever of the collectors answers.

    Each (re)connection sends `greeting()` first, then every frame that is not acknowledged, oldest first. Ask
    `has_room` before `submit`: what is submitted is kept in memory until it is acknowledged. A frame that a collector
    refuses as malformed is handed to `on_refused` and not sent again. All callbacks run in the link's threads
    (`greeting` too, so it returns a snapshot) and must be short.
    """

    def __init__(
        self,
        collectors: Sequence[str],
        *,
        forwarder: str,
        node: str,
        greeting: Callable[[], Iterable[wire.Frame]],
        on_command: Callable[[wire.Command], None] | None = None,
        on_refused: Callable[[wire.Frame, str], None] | None = None,
        max_unacked_bytes: int = 64 << 20,
        backoff: Backoff | None = None,
    ) -> None:
        self._collectors = itertools.cycle(collectors)
        self._hello = wire.Hello(protocol=PROTOCOL, forwarder=forwarder, node=node, version=_own_version())
        self._greeting = greeting
        self._on_command = on_command
        self._on_refused = on_refused
        self._max_unacked_bytes = max_unacked_bytes
        self._backoff = backoff or Backoff()
        self._unacked = UnackedFrames()
        self._stream: Stream | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flightwatch-link", daemon=True)
        self._greeted: dict[int, bytes] = {}  # of the present stream, until acknowledged
        self._refused_greetings: set[bytes] = set()
        self._window_seconds = 0.0
        self._was_welcomed = False  # on the present or last stream
        self.acked_frames = 0
        self.last_error = ""
        self.flush_interval_ms = 0  # as the collector wishes; 0 until one has said

    @property
    def connected(self) -> bool:
        """Return whether a collector has said welcome on a stream that still stands."""
        stream = self._stream
        return stream is not None and stream.welcomed.is_set()

    def start(self) -> None:
        """Begin to connect, in a thread of its own."""
        self._thread.start()

    def submit(self, frame: wire.Frame, on_ack: Callable[[], None] | None = None) -> None:
        """Number a frame, keep it and send it as soon as possible; `on_ack` is called once it needs no further care."""
        self._unacked.add(frame, on_ack)

    def has_room(self) -> bool:
        """Return whether less than max_unacked_bytes wait for their acknowledgement."""
        return self._unacked.total_bytes < self._max_unacked_bytes

    def wait_drained(self, timeout_s: float) -> bool:
        """Wait until everything submitted is acknowledged, and return whether it is."""
        with self._unacked.changed:
            return self._unacked.changed.wait_for(self._unacked.is_empty, timeout_s)

    def close(self) -> None:
        """End the stream and the thread. What is not acknowledged stays unacknowledged."""
        self._closed.set()
        stream = self._stream
        if stream is not None:
            stream.cancel()
        if self._thread.ident is not None:
            self._thread.join(timeout=5.0)

    def take_unacked(self) -> list[wire.Frame]:
        """Return, after `close`, the frames that no collector acknowledged, oldest first; the link forgets them."""
        return [wire.Frame.FromString(kept.body) for kept in self._unacked.take_all()]

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                delay = self._attempt(next(self._collectors))
            except Exception:
                # the loop's top: a fault of ours must not end delivery for the life of the node
                logger.exception("the link failed, and tries again")
                delay = self._backoff.next_delay(1.0)
            self._closed.wait(delay)

    def _attempt(self, collector: str) -> float:
        try:
            self._stream_to(collector)
        except grpc.RpcError as error:
            return self._after(collector, error)
        self.last_error = f"{collector}: the collector ended the stream"
        return self._backoff.next_delay(self._window_seconds)

    def _stream_to(self, collector: str) -> None:
        self._unacked.rewind()
        self._was_welcomed = False
        self._greeted.clear()
        with grpc.insecure_channel(collector, options=CHANNEL_OPTIONS) as channel:
            stream = Stream(channel, self._hello, self._unacked, self._greet)
            self._stream = stream
            try:
                if not self._closed.is_set():
                    for message in stream.messages():
                        self._take(stream, message)
            finally:
                self._stream = None
                stream.end()

    def _greet(self) -> Iterator[bytes]:
        for frame in self._greeting():
            frame.frame = 0
            if _digest(frame) in self._refused_greetings:
                continue
            frame.frame = self._unacked.number()
            self._greeted[frame.frame] = frame.SerializeToString()
            yield self._greeted[frame.frame]

    def _take(self, stream: Stream, message: wire.CollectorMessage) -> None:
        body = message.WhichOneof("body")
        if body == "welcome":
            self._window_seconds = message.welcome.reconnect_window_ms / 1000.0
            self.flush_interval_ms = message.welcome.flush_interval_ms
            self.last_error = ""
            self._was_welcomed = True
            stream.welcome()
        elif body == "ack":
            self._backoff.succeeded()
            self._settle(message.ack.frame)
        elif body == "command" and self._on_command is not None:
            self._on_command(message.command)

    def _settle(self, number: int) -> None:
        kept = self._unacked.settle(number)
        if kept is None:
            self._greeted.pop(number, None)
            return
        self.acked_frames += 1
        if kept.on_ack is not None:
            kept.on_ack()

    def _after(self, collector: str, error: grpc.RpcError) -> float:
        code, details = error.code(), error.details()
        if self._closed.is_set():
            return 0.0
        self.last_error = f"{collector}: {code.name}: {details}"
        logger.log(logging.DEBUG if code is grpc.StatusCode.UNAVAILABLE else logging.WARNING, "%s", self.last_error)
        # before the welcome it is we who are refused, such as our protocol, and no frame is to blame
        if code is grpc.StatusCode.INVALID_ARGUMENT and self._was_welcomed:
            metadata = dict(error.trailing_metadata() or ())
            self._refuse(int(metadata.get(REFUSED_FRAME_KEY, 0)) or self._unacked.oldest(), details)
        if code in _DENIED:
            return DENIED_SECONDS
        return self._backoff.next_delay(self._window_seconds)

    def _refuse(self, number: int, problem: str) -> None:
        kept = self._unacked.settle(number)
        if kept is not None:
            frame = wire.Frame.FromString(kept.body)
        else:
            frame = self._find_greeting(number)
            if frame is None:
                return
            self._refused_greetings.add(_digest(frame))
        try:
            if self._on_refused is not None:
                self._on_refused(frame, problem)
        finally:
            if kept is not None and kept.on_ack is not None:
                kept.on_ack()

    def _find_greeting(self, number: int) -> wire.Frame | None:
        """Return a refused greeting without its number: its content comes again at each connection, renumbered."""
        body = self._greeted.get(number)
        if body is None:
            return None
        frame: wire.Frame = wire.Frame.FromString(body)
        frame.frame = 0
        return frame


def _digest(frame: wire.Frame) -> bytes:
    return hashlib.sha256(frame.SerializeToString(deterministic=True)).digest()


def _own_version() -> str:
    try:
        return version("flightwatch")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"
