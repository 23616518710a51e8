"""`flightwatch analytics`: watches running jobs and opens incidents."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading

from analytics.bootstrap import build_analytics, wait_for_stores
from collector.settings import Settings

HELP = "watch running jobs, open and resolve incidents, tell the webhook"
WAIT_SECONDS = 60.0
CHATTY = ("httpx2", "httpcore2", "urllib3", "clickhouse_connect")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--wait",
        type=float,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help="how long to wait at the start for stores that do not answer (default: %(default)s)",
    )
    parser.epilog = (
        "Reads FLIGHTWATCH_STORE_URL, FLIGHTWATCH_RECORDS_URL (or FLIGHTWATCH_DATA), FLIGHTWATCH_PUBLIC_URL, "
        "FLIGHTWATCH_WEBHOOK_URL and FLIGHTWATCH_WEBHOOK_SECRET_FILE. Ends on SIGTERM or SIGINT with exit code 0."
    )


def run(args: argparse.Namespace) -> int:
    """Watch until told to stop."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    analytics = build_analytics(Settings.from_environment())
    try:
        wait_for_stores(analytics, stop, wait_seconds=args.wait)
        if not stop.is_set():
            logging.getLogger(__name__).info("watching; webhook %s", "on" if analytics.channels else "off")
            analytics.run(stop)
    finally:
        analytics.close()
    return 0
