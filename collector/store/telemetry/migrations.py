"""The runner of the telemetry store's numbered SQL scripts. No transactions here: every statement can be repeated."""

from __future__ import annotations

import logging

import numpy as np

from collector.errors import SchemaMismatchError
from collector.store.scripts import describe_mismatch
from collector.store.telemetry.client import TelemetryClient
from collector.store.telemetry.scripts import newest_version, scripts

logger = logging.getLogger(__name__)

LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (version UInt32, applied_at DateTime DEFAULT now())
ENGINE = MergeTree ORDER BY version SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
"""


def migrate_telemetry(client: TelemetryClient) -> tuple[int, int]:
    """Apply the scripts that the store lacks, in order; return its version before and after.

    A script that was cut off is run again from its start; hence IF NOT EXISTS in every script.

    Raises:
        SchemaMismatchError: the store is newer than this program.
    """
    before, wanted = client.schema_version(), newest_version()
    if before > wanted:
        name = f"the telemetry store {client.url}"
        raise SchemaMismatchError(describe_mismatch(name, str(before), str(wanted), is_newer=True))
    client.command(LEDGER)
    for script in scripts():
        if script.version > before:
            for statement in script.statements:
                client.command(statement)
            client.insert("schema_migrations", {"version": np.array([script.version], np.uint32)})
            logger.info("telemetry store: applied %s", script.name)
    return before, wanted
