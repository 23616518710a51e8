"""`flightwatch up`: store, collector, analytics and dashboard on this machine, supervised."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from collector.settings import DEFAULT_COLLECTOR, Settings
from collector.store.records.session import PRIVATE
from dashboard.supervision.addresses import Addresses, split_address
from dashboard.supervision.server_parts import Server
from dashboard.supervision.stop_signals import StopSignals
from flightwatch.errors import FlightwatchError

HELP = "start store, collector, analytics and dashboard on this machine"
LOOK_SECONDS = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="data directory (FLIGHTWATCH_DATA)")
    parser.add_argument(
        "--port-base", type=int, metavar="N", help="dashboard on port N, collector on N+1, store on N+2, on loopback"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line once ready; progress goes to stderr")


def run(args: argparse.Namespace) -> int:
    """Run the server until SIGINT or SIGTERM; 0 then, 2 when it cannot start."""
    settings = Settings.from_environment()
    addresses = Addresses.of(settings) if args.port_base is None else Addresses.from_base(args.port_base)
    addresses.check_free()
    data_dir = usable_directory(args.data or settings.data_dir)
    say = functools.partial(tell, sys.stderr if args.json else sys.stdout)
    with StopSignals() as stop:
        server = Server(addresses, data_dir, say)
        say(f"starting; data in {server.data_dir}, logs in {server.log_dir}")
        try:
            server.start(stop)
            if not stop():
                _announce(server, say, as_json=args.json)
            while not stop.wait(LOOK_SECONDS):
                server.supervisor.look()
            say("stopping")
        finally:
            server.stop()
        say("stopped")
    return 0


def tell(stream: TextIO, line: str) -> None:
    """Print a line of progress; whether anybody reads it does not matter."""
    try:
        print(f"flightwatch: {line}", file=stream, flush=True)
    except OSError:
        # The terminal is gone. What is left unwritten must not fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def usable_directory(path: Path) -> Path:
    """Return `path`, made if need be.

    Raises:
        FlightwatchError: it cannot be made or written.
    """
    try:
        path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    except OSError as error:
        raise FlightwatchError(f"data directory {path} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise FlightwatchError(f"data directory {path} is not writable; choose another with --data")
    return path


def ssh_hint(addresses: Addresses) -> str:
    """Return how to reach the dashboard from another machine."""
    _, port = split_address(addresses.dashboard, "FLIGHTWATCH_DASHBOARD")
    return f"from another machine: ssh -L {port}:127.0.0.1:{port} {os.uname().nodename}"


def _announce(server: Server, say: Callable[[str], None], *, as_json: bool) -> None:
    url = f"http://{server.addresses.dashboard}"
    if as_json:
        ready = {
            "dashboard": url,
            "collector": server.addresses.collector,
            "store": server.settings.store_url,
            "data": str(server.data_dir),
            "pids": server.supervisor.pids,
        }
        print(json.dumps(ready), flush=True)
        return
    say(f"up: {url}")
    say(ssh_hint(server.addresses))
    collector = server.addresses.collector
    variable = "" if collector == DEFAULT_COLLECTOR else f"FLIGHTWATCH_COLLECTOR={collector} "
    say(f"watch a job: {variable}flightwatch run -- torchrun ... train.py   (Ctrl-C stops the server)")
