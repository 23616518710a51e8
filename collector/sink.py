"""Writes batches into both stores, in an order in which nothing refers to what is not there yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from clickhouse_connect.driver.exceptions import ClickHouseError
from sqlalchemy.exc import DataError

from collector.batch import Batch
from collector.decode import Columns
from collector.errors import RefusedRowsError
from collector.registry import Registry
from flightwatch.wire import flightwatch_pb2 as wire

TOUCH_SECONDS = 1.0
MAX_REMEMBERED_NAMES = 1_000_000
# ClickHouse's errors of values that cannot be read or do not fit (src/Common/ErrorCodes.cpp)
CONTENT_CODES = frozenset({6, 27, 33, 38, 41, 69, 70, 72, 117, 128, 131, 321, 349, 407, 469})
DATA_TABLES = ("ops", "cells", "metrics", "gaps")


class Telemetry(Protocol):
    """What the sink needs of a telemetry client."""

    def insert(self, table: str, columns: Mapping[str, Any]) -> None:
        """Insert rows given by columns, and return when they are on disk."""


class StoreSink:
    """Starts, names, data, ends: when an end is entered, every record before it is on disk. Used by one thread."""

    def __init__(
        self, telemetry: Telemetry, registry: Registry, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._telemetry = telemetry
        self._registry = registry
        self._clock = clock
        self._named: set[tuple[str, int]] = set()  # op names that are in the store
        self._last_steps: dict[str, int] = {}
        self._nodes: set[str] = set()
        self._touched = -TOUCH_SECONDS

    def write(self, batch: Batch) -> None:
        """Write all of a batch. If it raises, the whole batch is to be written again, which does no harm.

        Raises:
            RefusedRowsError: a store answers, and will never take these rows.
        """
        try:
            self._write(batch)
        except Exception as error:
            if _blames_the_rows(error):
                raise RefusedRowsError(f"a store refuses its rows: {str(error).splitlines()[0]}") from error
            raise

    def _write(self, batch: Batch) -> None:
        self._registry.enter_starts(batch.starts)
        self._write_names(batch.names)
        for table in DATA_TABLES:
            columns = batch.tables.get(table)
            if columns is not None:
                self._telemetry.insert(table, columns)
        self._registry.enter_ends(batch.ends)
        self._touch(batch)

    def _write_names(self, names: Mapping[tuple[str, int], wire.OpDescriptor]) -> None:
        fresh = {key: op for key, op in names.items() if key not in self._named}
        if not fresh:
            return
        self._telemetry.insert("op_names", _name_columns(fresh))
        if len(self._named) > MAX_REMEMBERED_NAMES:
            self._named.clear()
        self._named.update(fresh)

    def _touch(self, batch: Batch) -> None:
        for run, step in batch.last_steps.items():
            self._last_steps[run] = max(step, self._last_steps.get(run, step))
        self._nodes |= batch.nodes
        if self._clock() - self._touched >= TOUCH_SECONDS or batch.ends:
            self.flush()

    def flush(self) -> None:
        """Enter now how far runs came and which nodes were heard; `write` does it about once a second."""
        self._registry.touch(self._last_steps, self._nodes)
        self._last_steps, self._nodes = {}, set()
        self._touched = self._clock()


def _blames_the_rows(error: Exception) -> bool:
    """Return whether a store's error is of what rows hold; in doubt it is not, and they are tried again."""
    if isinstance(error, ClickHouseError):
        return getattr(error, "code", None) in CONTENT_CODES
    return isinstance(error, DataError | ValueError | OverflowError)


def _name_columns(names: Mapping[tuple[str, int], wire.OpDescriptor]) -> Columns:
    ops = list(names.values())
    return {
        "run": [run for run, _ in names],
        "op": [key for _, key in names],
        "kind": [op.kind for op in ops],
        "name": [op.name for op in ops],
        "module": [op.module for op in ops],
        "process_group": [op.group for op in ops],
        "members": [list(op.members) for op in ops],
        "dtype": [op.dtype for op in ops],
        "size_class": [op.size_class for op in ops],
        "backend": [op.backend for op in ops],
    }
