"""`flightwatch forward`: send what this node's ranks recorded to a collector."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import signal
import threading

from flightwatch._directory import make_rings_directory, node_directory
from flightwatch._identity import identify
from flightwatch.devices.host import Host
from flightwatch.errors import FlightwatchError
from flightwatch.forward.forwarder import DRAIN_SECONDS, LINGER_SECONDS, Forwarder, Patience, has_live_ring
from flightwatch.forward.link import Link
from flightwatch.forward.node_lock import NodeLock
from flightwatch.forward.outbox import Outbox
from flightwatch.forward.roster import Roster
from flightwatch.forward.spool import Spool

HELP = "forward this node's rings to a collector (one per node)"

DEFAULT_COLLECTOR = "127.0.0.1:7460"
# What waits in memory for its acknowledgement; beyond it the rings and the spool hold the rest.
MAX_UNACKED_BYTES = 16 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--dir", help="rings and spool of this node (default: FLIGHTWATCH_DIR)")
    parser.add_argument("--collector", metavar="HOST:PORT[,...]", help="where to send (default: FLIGHTWATCH_COLLECTOR)")
    parser.add_argument(
        "--linger", type=float, default=LINGER_SECONDS, help="seconds to stay after the last rank ended (%(default)s)"
    )
    parser.add_argument(
        "--drain",
        type=float,
        default=DRAIN_SECONDS,
        help="seconds to wait for a collector after the last rank ended; then what is left goes to disk (%(default)s)",
    )
    parser.add_argument("--once", action="store_true", help="send what is there now, and exit")


def run(args: argparse.Namespace) -> int:
    """Forward until nothing is left to do or SIGTERM; a second forwarder of a node leaves at once."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    directory = os.path.abspath(args.dir) if args.dir else node_directory(os.environ)
    lock = NodeLock(directory)
    try:
        make_rings_directory(directory)
        if not lock.acquire():
            logging.getLogger(__name__).info("another forwarder serves %s", directory)
            return 0
    except OSError as error:
        raise FlightwatchError(f"cannot use {directory}: {error.strerror or error}; set FLIGHTWATCH_DIR") from error
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while True:
        try:
            build(directory, args).run(stop)
        finally:
            lock.release()
        # a rank that began while we were about to go saw our lock, and counts on us
        if args.once or stop.is_set() or not has_live_ring(directory) or not lock.acquire():
            return 0


def build(directory: str, args: argparse.Namespace) -> Forwarder:
    """Return the forwarder with all its parts, its link started."""
    collectors = (args.collector or os.environ.get("FLIGHTWATCH_COLLECTOR") or DEFAULT_COLLECTOR).split(",")
    node = identify(os.environ).node
    roster = Roster()
    link = Link(
        [collector.strip() for collector in collectors if collector.strip()],
        forwarder=secrets.token_hex(8),
        node=node,
        greeting=roster.greeting,
        on_command=lambda command: forwarder.command(command),
        on_refused=lambda frame, problem: outbox.refuse(frame, problem),
        max_unacked_bytes=MAX_UNACKED_BYTES,
    )
    spool = os.path.join(directory, "spool")
    outbox = Outbox(link, Spool(spool, roster.greeting), roster, quarantine=os.path.join(spool, "quarantine"))
    patience = Patience(linger=args.linger, drain=args.drain, once=args.once)
    forwarder = Forwarder(directory, link, outbox, roster, node=node, sensors=Host(), patience=patience)
    link.start()
    return forwarder
