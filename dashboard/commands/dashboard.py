"""`flightwatch dashboard`: serve the pages and the API."""

from __future__ import annotations

import argparse
import errno
import logging
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace

import uvicorn

from collector.errors import PortInUseError, StoreUnreachableError
from collector.listening import add_flag, is_allowed, refuse_open_address
from collector.settings import Settings
from collector.store.records.session import check_schema, open_engine
from collector.store.telemetry.client import connect
from dashboard.app import create_app
from flightwatch.errors import FlightwatchError

HELP = "serve the pages and the API"
WAIT_FOR_STORES_SECONDS = 30.0
RETRY_SECONDS = 0.5
# Open pages hold websockets for ever; uvicorn waits for them no longer than this when told to end.
GRACE_SECONDS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --listen."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where to serve (default: FLIGHTWATCH_DASHBOARD, or 127.0.0.1:8460)",
    )
    add_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until told to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    settings = Settings.from_environment()
    if args.listen:
        settings = replace(settings, dashboard=args.listen)
    host, port = parse_address(settings.dashboard)
    refuse_open_address(settings.dashboard, allowed=is_allowed(args, settings))
    listener = open_listener(host, port)
    try:
        wait_for(lambda: connect(settings.store_url).check_schema())
        wait_for(lambda: check_schema(open_engine(settings.records_url)))
        config = uvicorn.Config(
            create_app(settings), log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS
        )
        shown = f"[{host}]" if ":" in host else host
        print(f"flightwatch dashboard: http://{shown}:{listener.getsockname()[1]}/ui/", flush=True)
        # uvicorn ends in order and then raises the signal again, which by default would make it an exit by signal
        signal.signal(signal.SIGTERM, lambda _number, _frame: None)
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()
    return 0


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of "HOST:PORT" or "[v6]:PORT".

    Raises:
        FlightwatchError: it is neither.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise FlightwatchError(f"{text!r} is no address: give HOST:PORT, such as 127.0.0.1:8460")
    return host.strip("[]") or "127.0.0.1", int(port)


def open_listener(host: str, port: int) -> socket.socket:
    """Return a bound socket.

    Raises:
        PortInUseError: the port is taken.
        FlightwatchError: the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"port {port} on {host} is taken; give another one by `flightwatch dashboard --listen {host}:PORT`"
            ) from error
        raise FlightwatchError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listener


def wait_for(
    check: Callable[[], None],
    *,
    limit_seconds: float = WAIT_FOR_STORES_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when `check` no longer raises StoreUnreachableError; raise it when `limit_seconds` have passed."""
    end = clock() + limit_seconds
    while True:
        try:
            check()
            return
        except StoreUnreachableError:
            if clock() >= end:
                raise
            sleep(RETRY_SECONDS)
