"""Whether what a job wrote is what the store has."""

from __future__ import annotations

from dataclasses import dataclass

from collector.store.telemetry import queries
from collector.store.telemetry.client import connect


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows that readers see, and the different records among them."""

    rows: int
    numbers: int


def count_stored(store_url: str, run: str) -> Stored:
    """Return what the store has of a run."""
    client = connect(store_url)
    try:
        row = queries.record_totals(client, run).to_pylist()[0]
    finally:
        client.close()
    return Stored(rows=int(row["rows"] or 0), numbers=int(row["numbers"] or 0))
