"""Builds everything that the analytics process is made of, from its settings."""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Engine as RecordsEngine

from analytics.detectors import DETECTORS, LIVE_WINDOW_STEPS
from analytics.engine import Engine
from analytics.incidents.book import Book
from analytics.notify.channel import Channel
from analytics.notify.outbox import Outbox
from analytics.notify.webhook import WebhookChannel
from analytics.telemetry import StoredTelemetry
from collector.errors import StoreUnreachableError
from collector.settings import Settings
from collector.store.records.session import check_schema, open_engine
from collector.store.telemetry.client import TelemetryClient, connect

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
OUTBOX_STOP_SECONDS = 3.0  # a send that takes longer is left to its lease, and sent again at the next start


def utc_now() -> datetime:
    """Return the aware UTC time."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Analytics:
    """The analytics process: the engine in the caller's thread, the outbox in one of its own."""

    records: RecordsEngine
    telemetry: TelemetryClient
    engine: Engine
    outbox: Outbox
    channels: dict[str, Channel]

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set. A slow receiver holds up the outbox's thread only."""
        # detectors import it when they first cluster: seconds that the first verdict of a run should not wait for
        importlib.import_module("sklearn.cluster")
        worker = threading.Thread(target=self.outbox.run, args=(stop,), name="outbox", daemon=True)
        worker.start()
        try:
            self.engine.run(stop)
        finally:
            stop.set()
            worker.join(OUTBOX_STOP_SECONDS)
            self.close()

    def close(self) -> None:
        """Close what is open."""
        for channel in self.channels.values():
            channel.close()
        self.telemetry.close()
        self.records.dispose()


def build_analytics(settings: Settings) -> Analytics:
    """Return the process's parts; nothing is connected yet.

    Raises:
        FlightwatchError: a setting cannot be used.
    """
    channels: dict[str, Channel] = {}
    if settings.webhook_url:
        webhook = WebhookChannel(settings.webhook_url, settings.webhook_secret, clock=utc_now)
        channels[webhook.name] = webhook
    records = open_engine(settings.records_url)
    telemetry = connect(settings.store_url)
    book = Book(records, clock=utc_now, channels=tuple(channels), public_url=settings.public_url)
    engine = Engine(
        records=records,
        telemetry=StoredTelemetry(telemetry),
        detectors=DETECTORS,
        book=book,
        steps_kept=LIVE_WINDOW_STEPS,
    )
    return Analytics(records, telemetry, engine, Outbox(records, channels, clock=utc_now), channels)


def wait_for_stores(
    analytics: Analytics,
    stop: threading.Event,
    *,
    wait_seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Return once both stores answer and have this program's schema, or `stop` is set.

    Raises:
        SchemaMismatchError: a store has another schema; waiting would not help.
        StoreUnreachableError: a store did not answer for `wait_seconds`.
    """
    deadline = monotonic() + wait_seconds
    is_told = False
    while not stop.is_set():
        try:
            check_schema(analytics.records)
            analytics.telemetry.check_schema()
            return
        except StoreUnreachableError as error:
            if monotonic() >= deadline:
                raise
            if not is_told:
                logger.warning("%s; waiting up to %.0f s", error, wait_seconds)
            is_told = True
        stop.wait(RETRY_SECONDS)
