"""The verb `run`: become a training command, with the agent in every rank."""

from __future__ import annotations

import argparse
import os
import secrets
import site
import sys
import sysconfig
from collections.abc import Mapping

from flightwatch._directory import node_directory
from flightwatch._guard import contained
from flightwatch._identity import find_run_id
from flightwatch._node import ensure_forwarder
from flightwatch.errors import FlightwatchError

HELP = "run a training command with the agent in every rank"
_PACKAGE = os.path.dirname(os.path.abspath(__file__))


class CommandNotFoundError(FlightwatchError):
    """The command to watch cannot be started."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command and the few things one may want to say about it."""
    parser.usage = "flightwatch run [--run-id ID] [--] COMMAND [ARGUMENT ...]"
    parser.add_argument(
        "--run-id", default="", help="the run's id, stable across restarts; found from the launcher, or made up"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="for example torchrun ... train.py"
    )


def run(args: argparse.Namespace) -> int:
    """Set the stage and exec the command: its output, exit code and signals are its own."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise CommandNotFoundError("no command to run; write `flightwatch run -- torchrun ... train.py`")
    environment = prepare(os.environ, run_id=args.run_id)
    if environment.get("FLIGHTWATCH") == "1":
        with contained("start forwarder"):
            ensure_forwarder(node_directory(environment), environment)
        print(f"flightwatch: watching run {environment['FLIGHTWATCH_RUN_ID']}", file=sys.stderr, flush=True)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  # to become it is the purpose
    except OSError as error:
        raise CommandNotFoundError(f"cannot run {command[0]!r}: {error.strerror}") from error


def prepare(environ: Mapping[str, str], *, run_id: str = "") -> dict[str, str]:
    """Return the command's environment: the switch on, a run id, and our start-up code within its reach.

    FLIGHTWATCH=0 is the kill switch and stays.
    """
    environment = dict(environ)
    if environment.get("FLIGHTWATCH") == "0":
        return environment
    environment["FLIGHTWATCH"] = "1"
    found = run_id or find_run_id(environ)[0] or f"run-{secrets.token_hex(4)}"
    environment["FLIGHTWATCH_RUN_ID"] = found
    if not starts_by_itself():
        # not installed, only on the path: what a .pth file would do is done by a sitecustomize that hands on to the
        # next one
        paths = [os.path.join(_PACKAGE, "_site"), os.path.dirname(_PACKAGE), environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


def starts_by_itself() -> bool:
    """Return whether this interpreter has flightwatch.pth where it looks for such files."""
    places = [sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()]
    return any(os.path.exists(os.path.join(place, "flightwatch.pth")) for place in places)
