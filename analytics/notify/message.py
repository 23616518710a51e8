"""What a channel is told about an incident: the body of a Standard Webhooks message, culprit first and thin."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from collector.store.records import Incident

OPENED = "incident.opened"
RESOLVED = "incident.resolved"

# Standard Webhooks 1.0.0, "Payload size": below 20 KB, so that receivers of any make take it.
BODY_BYTES = 20_000
RANKS_TOLD = 256
NODES_TOLD = 64
EVIDENCE_TOLD = 4
TEXT_CHARACTERS = 1_000


def body_of(incident: Incident, event: str, *, at: datetime, public_url: str) -> str:
    """Return the JSON text, below BODY_BYTES whatever the incident holds.

    Args:
        incident: as it is being written.
        event: OPENED or RESOLVED.
        at: the time of the event.
        public_url: the dashboard's address without a trailing slash; the link is left out where it is empty.
    """
    told = _data_of(incident)
    if public_url:
        told["url"] = f"{public_url}/ui/incidents/{incident.id}"
    for shed in ("", "evidence", "nodes", "ranks", "next"):
        told.pop(shed, None)
        text = json.dumps({"type": event, "timestamp": at.isoformat(), "data": told}, separators=(",", ":"))
        if len(text.encode()) < BODY_BYTES:
            return text
    raise AssertionError("unreachable: every text is cut")


def _data_of(incident: Incident) -> dict[str, Any]:
    finding = incident.finding
    resolution = finding.get("resolution") or {}
    return {
        "entity": _cut(incident.entity),
        "ranks": incident.ranks[:RANKS_TOLD],
        "rank_count": len(incident.ranks),
        "nodes": [_cut(node) for node in incident.nodes[:NODES_TOLD]],
        "node_count": len(incident.nodes),
        "kind": incident.kind,
        "cause": incident.cause,
        "severity": incident.severity,
        "summary": _cut(incident.summary),
        "state": incident.state,
        "incident": incident.id,
        "run": _cut(incident.run_id),
        "since": {
            "step": incident.first_step,
            "time": finding.get("started_at"),
            "opened_step": incident.opened_step,
            "opened_at": incident.opened_at.isoformat(),
        },
        "until": {
            "step": incident.last_step,
            "resolved_step": incident.resolved_step,
            "resolved_at": incident.resolved_at.isoformat() if incident.resolved_at else None,
            "reason": resolution.get("reason"),
            "merged_into": resolution.get("into"),
        },
        "confidence": incident.confidence,
        "evict": bool(finding.get("evict")),
        "cost": finding.get("cost"),
        "next": _cut(str(finding.get("next", ""))),
        "evidence": [
            {**item, "text": _cut(str(item.get("text", "")))} for item in finding.get("evidence", ())[:EVIDENCE_TOLD]
        ],
    }


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 1] + "…"
