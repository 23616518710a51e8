"""`flightwatch collector`: take in what forwarders send."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import resource
import signal

from collector.bootstrap import build_server
from collector.listening import add_flag, is_allowed, refuse_open_address
from collector.server import CollectorServer, check_port
from collector.settings import Settings

HELP = "take in what forwarders send, and write it into the stores"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="where to listen (default: FLIGHTWATCH_COLLECTOR, or 127.0.0.1:7460)"
    )
    add_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, then write and acknowledge what was read."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = Settings.from_environment()
    listen = args.listen or settings.collector
    refuse_open_address(listen, allowed=is_allowed(args, settings))
    check_port(listen)  # before waiting for the stores: the commonest mistake is told at once
    _raise_file_limit()
    asyncio.run(_serve(build_server(settings), listen))
    return 0


async def _serve(server: CollectorServer, listen: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await server.run(listen, stop)


def _raise_file_limit() -> None:
    """Allow as many open streams as the system lets us have; the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
