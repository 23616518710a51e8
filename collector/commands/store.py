"""The verb `store`."""

from __future__ import annotations

import argparse
import errno
import shutil
import signal
import socket
from pathlib import Path

import uvicorn

from collector.errors import PortInUseError
from collector.settings import Settings
from collector.store.telemetry.engine import Engine
from collector.store.telemetry.http_front import HttpFront
from collector.store.telemetry.http_request import is_loopback
from flightwatch.errors import FlightwatchError

HELP = "serve the embedded telemetry store over ClickHouse's HTTP protocol"
DEFAULT_LISTEN = "127.0.0.1:8124"
KEEP_ALIVE_SECONDS = 75  # uvicorn's 5 s would close the connection of whoever asks every ten
DRAIN_SECONDS = 70  # the longest query that the engine allows, and a little


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --listen and --data."""
    parser.add_argument("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help="loopback only (%(default)s)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data directory (FLIGHTWATCH_DATA)")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    data_dir = args.data or Settings.from_environment().data_dir
    listener = _listen(args.listen)
    engine = Engine(data_dir.absolute() / "telemetry")
    uploads = data_dir.absolute() / "uploads"
    shutil.rmtree(uploads, ignore_errors=True)  # what a killed store left; ours alone, since the engine is locked
    uploads.mkdir()
    with listener:
        front = HttpFront(engine, uploads)
        host, port = listener.getsockname()[:2]
        print(f"flightwatch: store listens on http://{host}:{port}, data in {engine.path}", flush=True)
        _serve(front, listener)
        front.close()
    engine.close()
    return 0


def _serve(front: HttpFront, listener: socket.socket) -> None:
    # uvicorn raises the signal anew once it has stopped; a stop on request is a success here.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    config = uvicorn.Config(
        front,
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    uvicorn.Server(config).run(sockets=[listener])


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise FlightwatchError(f"--listen {address!r} is not HOST:PORT")
    if not is_loopback(host):
        raise FlightwatchError(f"--listen {address}: the store has no tokens yet and serves loopback only")
    try:
        return socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"port {port} on {host} is in use; choose another with --listen (is a store already running?)"
            ) from None
        raise FlightwatchError(f"--listen {address}: {error.strerror}") from error
