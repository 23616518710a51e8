"""Builds every object of the collector from its settings."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable

from sqlalchemy import Engine

from collector.batcher import Batcher
from collector.errors import StoreUnreachableError
from collector.registry import Registry
from collector.server import CollectorServer
from collector.service import TelemetryService
from collector.settings import Settings
from collector.sink import StoreSink
from collector.store.records.session import check_schema, open_engine
from collector.store.telemetry.client import TelemetryClient, connect

logger = logging.getLogger(__name__)

STORES_SECONDS = 30.0  # the embedded store, started by the same supervisor, takes a few
POLL_SECONDS = 0.25


def build_server(settings: Settings) -> CollectorServer:
    """Return a collector whose stores answer and have this program's schema.

    Raises:
        StoreUnreachableError: a store did not answer within 30 s.
        SchemaMismatchError: a store has another schema.
    """
    telemetry = connect(settings.store_url)
    engine = open_engine(settings.records_url)
    wait_for_stores(telemetry, engine)
    sink = StoreSink(telemetry, Registry(engine))
    batcher = Batcher(sink)
    return CollectorServer(TelemetryService(batcher, name=socket.gethostname()), batcher, sink)


def wait_for_stores(
    telemetry: TelemetryClient,
    engine: Engine,
    *,
    timeout_seconds: float = STORES_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Return once both stores answer with the right schema; a wrong schema, or no answer in time, raises."""
    deadline = clock() + timeout_seconds
    said = False
    while True:
        try:
            telemetry.check_schema()
            check_schema(engine)
        except StoreUnreachableError as error:
            if clock() >= deadline:
                raise
            if not said:
                logger.info("waiting for the stores: %s", error)
                said = True
        else:
            return
        sleep(POLL_SECONDS)
