"""Who may be let in: without a login only this machine, unless somebody says otherwise in so many words."""

from __future__ import annotations

import argparse

from collector.settings import Settings
from collector.store.telemetry.http_request import is_loopback
from flightwatch.errors import FlightwatchError

FLAG = "--insecure-listen"
VARIABLE = "FLIGHTWATCH_INSECURE_LISTEN"


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Declare --insecure-listen."""
    parser.add_argument(
        FLAG, action="store_true", help=f"allow --listen beyond loopback, though there is no login yet ({VARIABLE}=1)"
    )


def is_allowed(args: argparse.Namespace, settings: Settings) -> bool:
    """Return whether the flag or the variable allows it."""
    return bool(args.insecure_listen) or settings.insecure_listen


def refuse_open_address(address: str, *, allowed: bool) -> None:
    """Return if `address` (HOST:PORT) is of loopback, or others are let in on purpose.

    Raises:
        FlightwatchError: whoever reaches the address would be let in.
    """
    host = address.rpartition(":")[0]
    if host and not allowed and not is_loopback(host):
        raise FlightwatchError(
            f"{address} lets in whoever reaches it, for there is no login yet: listen on 127.0.0.1, "
            f"or say {FLAG} ({VARIABLE}=1) on a network that you trust"
        )
