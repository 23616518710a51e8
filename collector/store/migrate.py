"""Bringing both stores to this program's schema. Only the verbs `up` and `migrate` do it; all others check."""

from __future__ import annotations

from dataclasses import dataclass

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine

from collector.errors import SchemaMismatchError
from collector.settings import Settings
from collector.store.records.session import check_schema, current_revision, open_engine, record_scripts
from collector.store.scripts import describe_mismatch, migration_scripts
from collector.store.telemetry.client import TelemetryClient, connect
from collector.store.telemetry.migrations import migrate_telemetry


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration found and left; versions are "0" before the first migration."""

    store: str
    before: str
    after: str


def migrate_all(settings: Settings) -> tuple[Migrated, Migrated]:
    """Bring both stores to this program's schema, and say what changed; doing it again does nothing.

    Raises:
        SchemaMismatchError: a store is of a newer schema.
        StoreUnreachableError: a store does not answer.
    """
    engine = open_engine(settings.records_url)
    client = connect(settings.store_url)
    try:
        return migrate_records(engine), _migrate_telemetry(client)
    finally:
        client.close()
        engine.dispose()


def check_all(settings: Settings) -> None:
    """Return if both stores have this program's schema.

    Raises:
        SchemaMismatchError: one has not.
        StoreUnreachableError: one does not answer.
    """
    engine = open_engine(settings.records_url)
    client = connect(settings.store_url)
    try:
        check_schema(engine)
        client.check_schema()
    finally:
        client.close()
        engine.dispose()


def migrate_records(engine: Engine, revision: str = "head") -> Migrated:
    """Bring the records store to `revision`, up or down ("base" empties it).

    Raises:
        SchemaMismatchError: it is at a revision that this program does not know.
    """
    before = current_revision(engine)
    scripts = record_scripts()
    order = [script.revision for script in scripts.walk_revisions()][::-1]
    if before is not None and before not in order:
        name = f"the records store {engine.url.render_as_string(hide_password=True)}"
        raise SchemaMismatchError(describe_mismatch(name, before, order[-1], is_newer=True))
    target = order[-1] if revision == "head" else revision
    config = Config()
    config.set_main_option("script_location", str(migration_scripts("records")).replace("%", "%%"))
    with engine.execution_options(flightwatch_writing=True).begin() as connection:
        config.attributes["connection"] = connection
        if target == "base" or (before is not None and order.index(target) < order.index(before)):
            command.downgrade(config, target)
        else:
            command.upgrade(config, target)
    return Migrated("records", before or "0", current_revision(engine) or "0")


def _migrate_telemetry(client: TelemetryClient) -> Migrated:
    before, after = migrate_telemetry(client)
    return Migrated("telemetry", str(before), str(after))
