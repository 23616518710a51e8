"""A collector that does what the test tells it: acknowledge, keep silent, refuse. Needs no part of the server."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc

from flightwatch.wire import flightwatch_pb2 as wire
from flightwatch.wire import flightwatch_pb2_grpc as services


class ScriptedCollector(services.TelemetryServicer):
    """Takes every frame of every stream into `frames`; `hellos` counts streams.

    `acknowledges` clear: frames are taken in silence. `refuses`: slices of these first records are refused.
    """

    def __init__(self, *, port: int = 0, names_frame: bool = True, refuses_hello: bool = False) -> None:
        self.frames: list[wire.Frame] = []
        self.hellos: list[wire.Hello] = []
        self.acknowledges = threading.Event()
        self.acknowledges.set()
        self.refuses: set[int] = set()
        self.reconnect_window_ms = 0
        self._names_frame = names_frame
        self._refuses_hello = refuses_hello
        self._commands: queue.SimpleQueue[wire.Command] = queue.SimpleQueue()
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        services.add_TelemetryServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.stop(0).wait(10)

    def send_command(self, command: wire.Command) -> None:
        self._commands.put(command)

    def first_records(self) -> list[int]:
        """Return the first record of each slice that came, in order."""
        return [piece.first_record for frame in self.frames for piece in frame.slices]

    def Stream(  # noqa: N802  # named by the wire
        self, requests: Iterator[wire.ForwarderMessage], context: grpc.ServicerContext
    ) -> Iterator[wire.CollectorMessage]:
        for message in requests:
            if message.WhichOneof("body") == "hello":
                self.hellos.append(message.hello)
                if self._refuses_hello:
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "hello.protocol: scripted")
                welcome = wire.Welcome(collector="scripted", reconnect_window_ms=self.reconnect_window_ms)
                yield wire.CollectorMessage(welcome=welcome)
                while not self._commands.empty():
                    yield wire.CollectorMessage(command=self._commands.get())
                continue
            if any(piece.first_record in self.refuses for piece in message.frame.slices):
                if self._names_frame:
                    context.set_trailing_metadata((("flightwatch-frame", str(message.frame.frame)),))
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "slices[0].records: scripted")
            self.frames.append(message.frame)
            if self.acknowledges.is_set():
                yield wire.CollectorMessage(ack=wire.Ack(frame=message.frame.frame))
