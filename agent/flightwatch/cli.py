"""The `flightwatch` command. Its own verbs live in the agent; the server's come through entry points.

A verb is a module with HELP (one line), add_arguments(parser) and run(args) -> exit code: 0 nothing wrong, 1 something
found, 2 bad input. Modules are imported only when their verb is called, so that `flightwatch run` never pays for the
server.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Protocol

from flightwatch.errors import FlightwatchError

AGENT_VERBS = {
    "run": ("flightwatch.run_command", "run a training command with the agent in every rank"),
    "forward": ("flightwatch.forward.command", "forward this node's rings to a collector (one per node)"),
    "version": ("flightwatch.version_command", "print the version"),
}
SERVER_VERBS = {
    "up": "start store, collector, analytics and dashboard on this machine",
    "demo": "`up`, plus a simulated 1,024-rank job with a slow node",
    "store": "serve the embedded telemetry store over ClickHouse's HTTP protocol",
    "collector": "take in what forwarders send",
    "analytics": "watch running jobs and open incidents",
    "dashboard": "serve the pages and the API",
    "migrate": "bring both stores to this version's schema",
    "diagnose": "run the detectors on a file or folder",
    "runs": "list runs",
    "incidents": "list incidents, or show one",
    "status": "say how the server and its data are",
}
SERVER_DISTRIBUTION = "flightwatch-server"


class Verb(Protocol):
    """What a verb's module has to offer."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it, and return the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; a FlightwatchError becomes one line on stderr and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    overview = _overview()
    if not arguments or arguments[0] in ("-h", "--help"):
        overview.print_help()
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if name == "--version":
        name = "version"
    try:
        verb = _find(name)
        parser = argparse.ArgumentParser(prog=f"flightwatch {name}", description=verb.HELP)
        verb.add_arguments(parser)
        return verb.run(parser.parse_args(rest))
    except FlightwatchError as error:
        print(f"flightwatch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0


def _overview() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flightwatch",
        description="Observability and anomaly detection for distributed training.",
        epilog="`flightwatch VERB --help` tells more. Exit codes: 0 nothing wrong, 1 something found, 2 bad input.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    for name, text in {**{k: v[1] for k, v in AGENT_VERBS.items()}, **SERVER_VERBS}.items():
        verbs.add_parser(name, help=text)
    return parser


def _find(name: str) -> Verb:
    if name in AGENT_VERBS:
        return importlib.import_module(AGENT_VERBS[name][0])
    found = entry_points(group="flightwatch.commands", name=name)
    for entry in found:
        return entry.load()  # type: ignore[no-any-return]  # checked by tests/agent/test_cli.py for every verb
    if name in SERVER_VERBS:
        raise FlightwatchError(f"`flightwatch {name}` belongs to the server: pip install {SERVER_DISTRIBUTION}")
    raise FlightwatchError(f"unknown verb {name!r}; `flightwatch --help` lists them")


if __name__ == "__main__":
    sys.exit(main())
