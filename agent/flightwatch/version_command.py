"""The verb `version`."""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import PackageNotFoundError, version

HELP = "print the version"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --json."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the versions of what is installed."""
    found = {"flightwatch": _version("flightwatch"), "flightwatch-server": _version("flightwatch-server")}
    found["python"] = platform.python_version()
    if args.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name} {number or 'not installed'}" for name, number in found.items()))
    return 0


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
