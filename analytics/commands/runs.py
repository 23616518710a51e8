"""`flightwatch runs`: the runs that the store knows, newest first."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from analytics.commands.open_records import open_records
from analytics.commands.text_table import age_text, text_table
from collector.settings import Settings
from collector.store.records import Incident, Run
from collector.store.records.incident import FIRING
from collector.store.records.run import ENDED, RUNNING

HELP = "list runs, newest first"
LIMIT = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--state", choices=(RUNNING, ENDED), help="only runs in this state")
    parser.add_argument("--limit", type=int, default=LIMIT, help="at most so many runs (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the runs."""
    with open_records(Settings.from_environment()) as session:
        rows = _rows(session, args.state, args.limit)
    if args.json:
        print(json.dumps({"runs": rows}, indent=2))
    elif not rows:
        print("no runs yet; start one with `flightwatch run -- torchrun ... train.py`, or try `flightwatch demo`")
    else:
        print(_table(rows))
    return 0


def _rows(session: Session, state: str | None, limit: int) -> list[dict[str, Any]]:
    firing = (
        select(func.count())
        .select_from(Incident)
        .where(Incident.run_id == Run.id, Incident.state == FIRING)
        .scalar_subquery()
    )
    query = select(Run, firing).order_by(Run.started_at.desc(), Run.id).limit(limit)
    if state:
        query = query.where(Run.state == state)
    return [
        {
            "id": run.id,
            "name": run.name,
            "state": run.state,
            "world_size": run.world_size,
            "last_step": run.last_step if run.last_step >= 0 else None,
            "started_at": run.started_at.isoformat(),
            "last_seen_at": run.last_seen_at.isoformat(),
            "ended_at": run.ended_at.isoformat() if run.ended_at else None,
            "firing_incidents": count,
        }
        for run, count in session.execute(query)
    ]


def _table(rows: list[dict[str, Any]]) -> str:
    now = datetime.now(UTC)
    return text_table(
        ("RUN", "NAME", "STATE", "RANKS", "STEP", "STARTED", "HEARD", "INCIDENTS"),
        [
            (
                row["id"],
                row["name"] or "-",
                row["state"],
                str(row["world_size"]),
                "-" if row["last_step"] is None else str(row["last_step"]),
                f"{age_text(datetime.fromisoformat(row['started_at']), now)} ago",
                f"{age_text(datetime.fromisoformat(row['last_seen_at']), now)} ago",
                f"{row['firing_incidents']} firing" if row["firing_incidents"] else "-",
            )
            for row in rows
        ],
    )
