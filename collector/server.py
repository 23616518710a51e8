"""Listens for forwarders, and leaves nothing half done when told to stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from collector.batcher import Batcher
from collector.errors import PortInUseError
from collector.service import MAX_MESSAGE_BYTES, SERVICE_NAME, TelemetryService
from collector.sink import StoreSink
from flightwatch.errors import FlightwatchError

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0  # a supervisor kills after 30 s or so
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # else a second collector would share the port in silence
    # strictly below the 30 s at which forwarders ping, else they get too_many_pings
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 60_000),  # finds forwarders whose host vanished
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.server_handshake_timeout_ms", 10_000),
    # grpc spreads it by +-10 %; streams move to new collectors within the hour
    ("grpc.max_connection_age_ms", 45 * 60_000),
    ("grpc.max_connection_age_grace_ms", 10_000),
)


class CollectorServer:
    """The listening half of a collector: gRPC server, health service, batcher."""

    def __init__(self, service: TelemetryService, batcher: Batcher, sink: StoreSink | None = None) -> None:
        self._service = service
        self._batcher = batcher
        self._sink = sink
        self._health = health.aio.HealthServicer()
        self.port = 0

    async def run(self, listen: str, stop: asyncio.Event, *, listening: asyncio.Event | None = None) -> None:
        """Serve until `stop`, then read no more, write and acknowledge what was read, and return.

        Args:
            listen: HOST:PORT; port 0 takes a free one, found in `port` afterwards.
            stop: set by whoever wants the end, such as a signal handler.
            listening: set once the port is open.

        Raises:
            PortInUseError: somebody else listens there.
        """
        check_port(listen)
        server = grpc.aio.server(options=SERVER_OPTIONS)
        server.add_generic_rpc_handlers((self._service.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        try:
            self.port = server.add_insecure_port(listen)
        except RuntimeError as error:
            raise PortInUseError(f"cannot listen on {listen}: {error}") from error
        await server.start()
        await self._health.set(SERVICE_NAME, health_pb2.HealthCheckResponse.SERVING)
        writing = asyncio.create_task(self._batcher.run())
        logger.info("listening on %s", listen)
        if listening is not None:
            listening.set()
        await _first_of(stop, writing)
        await self._drain(server, writing)

    async def _drain(self, server: grpc.aio.Server, writing: asyncio.Task[None]) -> None:
        await self._health.enter_graceful_shutdown()
        self._service.drain()
        stopping = asyncio.create_task(server.stop(DRAIN_SECONDS))
        await asyncio.wait({stopping}, timeout=DRAIN_SECONDS + 2.0)
        await self._batcher.drain()
        done, _ = await asyncio.wait({writing}, timeout=DRAIN_SECONDS)
        if not done:
            writing.cancel()
            logger.warning("stopped with rows that no store took; their forwarders still have them")
        elif writing.exception() is None and self._sink is not None:
            await asyncio.to_thread(self._sink.flush)


async def _first_of(stop: asyncio.Event, writing: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({waiting, writing}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if writing.done():
        writing.result()  # the batcher never ends before it is drained, unless by a fault of ours


def check_port(listen: str) -> None:
    """Return if HOST:PORT can be listened on; grpc itself only says so in lines of its own on stderr.

    Raises:
        PortInUseError: it is taken.
        FlightwatchError: it is no address of this machine.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit():
        raise FlightwatchError(f"{listen!r} is not HOST:PORT")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"port {listen} is in use; is another collector running? Choose another with --listen"
            ) from error
        raise FlightwatchError(f"cannot listen on {listen}: {error.strerror or error}") from error
