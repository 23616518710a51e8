"""`flightwatch incidents`: lists incidents, or shows one whole."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from analytics.commands.open_records import open_records
from analytics.commands.text_table import age_text, ranks_text, text_table
from collector.settings import Settings
from collector.store.records import Delivery, Incident
from collector.store.records.incident import FIRING, RESOLVED
from flightwatch.errors import FlightwatchError

HELP = "list incidents, or show one: what, why, evidence, next"
LIMIT = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("action", nargs="?", choices=("list", "show"), default="list", help="default: list")
    parser.add_argument("id", nargs="?", metavar="ID", help="the incident to show; its first characters do")
    parser.add_argument("--run", metavar="RUN", help="only incidents of this run")
    parser.add_argument("--state", choices=(FIRING, RESOLVED), help="only incidents in this state")
    parser.add_argument("--limit", type=int, default=LIMIT, help="at most so many incidents (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = "Exit codes: 0 nothing printed is firing, 1 something is, 2 bad input."


def run(args: argparse.Namespace) -> int:
    """List incidents or show one; 1 if one of them is firing."""
    with open_records(Settings.from_environment()) as session:
        if args.action == "show":
            incident = _found(session, args.id)
            deliveries = session.scalars(
                select(Delivery).where(Delivery.incident_id == incident.id).order_by(Delivery.created_at)
            ).all()
            shown = _json_of(incident) | {"deliveries": [_delivery_json(delivery) for delivery in deliveries]}
            print(json.dumps(shown, indent=2) if args.json else _page(incident, deliveries))
            return int(incident.state == FIRING)
        if args.id:
            raise FlightwatchError(
                f"`incidents list` takes no ID; did you mean `flightwatch incidents show {args.id}`?"
            )
        incidents = _listed(session, args)
    if args.json:
        print(json.dumps({"incidents": [_json_of(incident) for incident in incidents]}, indent=2))
    else:
        print(_table(incidents) if incidents else "no incidents")
    return int(any(incident.state == FIRING for incident in incidents))


def _listed(session: Session, args: argparse.Namespace) -> Sequence[Incident]:
    # firing ones first: a limit must not hide them
    query = (
        select(Incident).order_by(Incident.state != FIRING, Incident.opened_at.desc(), Incident.id).limit(args.limit)
    )
    if args.run:
        query = query.where(Incident.run_id == args.run)
    if args.state:
        query = query.where(Incident.state == args.state)
    return session.scalars(query).all()


def _found(session: Session, start: str | None) -> Incident:
    if not start:
        raise FlightwatchError(
            "say which incident: `flightwatch incidents show ID`; `flightwatch incidents` lists them"
        )
    found = session.scalars(select(Incident).where(Incident.id.startswith(start, autoescape=True)).limit(2)).all()
    if not found:
        raise FlightwatchError(f"no incident {start!r}; `flightwatch incidents` lists them")
    if len(found) > 1:
        raise FlightwatchError(f"{start!r} begins several incidents; give more of the id")
    return found[0]


def _json_of(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "run": incident.run_id,
        "state": incident.state,
        "kind": incident.kind,
        "cause": incident.cause,
        "entity": incident.entity,
        "severity": incident.severity,
        "ranks": incident.ranks,
        "nodes": incident.nodes,
        "summary": incident.summary,
        "confidence": incident.confidence,
        "slowdown": incident.slowdown,
        "first_step": incident.first_step,
        "last_step": incident.last_step,
        "opened_step": incident.opened_step,
        "resolved_step": incident.resolved_step,
        "opened_at": incident.opened_at.isoformat(),
        "updated_at": incident.updated_at.isoformat(),
        "resolved_at": incident.resolved_at.isoformat() if incident.resolved_at else None,
        "finding": incident.finding,
    }


def _delivery_json(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "event": delivery.event,
        "channel": delivery.channel,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "sent_at": delivery.sent_at.isoformat() if delivery.sent_at else None,
        "last_error": delivery.last_error,
    }


def _table(incidents: Sequence[Incident]) -> str:
    now = datetime.now(UTC)
    return text_table(
        ("INCIDENT", "STATE", "CULPRIT", "KIND", "CAUSE", "SINCE STEP", "OPENED", "RUN"),
        [
            (
                incident.id,
                incident.state,
                incident.entity,
                incident.kind,
                incident.cause,
                str(incident.first_step),
                f"{age_text(incident.opened_at, now)} ago",
                incident.run_id,
            )
            for incident in incidents
        ],
    )


def _page(incident: Incident, deliveries: Sequence[Delivery]) -> str:
    finding = incident.finding
    cost = finding.get("cost", {})
    lines = [
        f"{incident.id}  {incident.state}  {incident.severity}",
        f"run {incident.run_id}",
        "",
        f"What      {incident.summary}",
        f"          {incident.entity}: {incident.kind}, cause {incident.cause}, confidence {incident.confidence:.0%}",
        *([f"          ranks {ranks_text(incident.ranks)}"] if incident.ranks else []),
        *([f"          nodes {', '.join(incident.nodes[:8])}"] if incident.nodes else []),
        f"When      {_when(incident)}",
        f"Cost      the job takes {incident.slowdown:.2f} times as long as without it"
        f"{_hours(cost.get('wasted_accelerator_hours', 0.0))}",
        *_block("Evidence", [_evidence_text(item) for item in finding.get("evidence", ())]),
        *_block("Ruled out", finding.get("ruled_out", ())),
        *_block("Doubt", [finding["would_change_my_mind"]] if finding.get("would_change_my_mind") else []),
        f"Next      {finding.get('next', '')}",
        *_block("Told", [_delivery_text(delivery) for delivery in deliveries]),
    ]
    return "\n".join(lines)


def _block(title: str, texts: Sequence[str]) -> list[str]:
    return [f"{title if index == 0 else '':<10}{text}" for index, text in enumerate(texts)]


def _hours(hours: float) -> str:
    return f"; {hours:.2g} accelerator-hours lost so far" if hours > 0 else ""


def _evidence_text(item: dict[str, Any]) -> str:
    baseline = item.get("baseline")
    normal = "" if baseline is None else f", normal {baseline:.4g}"
    return f"{item['text']} ({item['value']:.4g} {item['unit']}{normal})".replace(" )", ")").replace(" ,", ",")


def _when(incident: Incident) -> str:
    text = f"steps {incident.first_step} to {incident.last_step}; opened at step {incident.opened_step}"
    if incident.resolved_step is None:
        return f"{text}, still there"
    reason = (incident.finding.get("resolution") or {}).get("reason", "")
    return f"{text}, resolved at step {incident.resolved_step}" + (f" ({reason})" if reason else "")


def _delivery_text(delivery: Delivery) -> str:
    text = f"{delivery.event} through {delivery.channel}: {delivery.state}"
    problem = f", last problem: {delivery.last_error}" if delivery.last_error else ""
    return f"{text} after {delivery.attempts} tries{problem}" if delivery.attempts != 1 else f"{text}{problem}"
