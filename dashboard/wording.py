"""Numbers, times and spans of ranks in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from analytics.rank_spans import rank_spans, span_text

RUNS_PATH = "/ui/"


def run_path(run_id: str) -> str:
    """Return the address of a run's page."""
    return f"/ui/runs/{quote(run_id, safe='')}"


def incident_path(incident_id: str) -> str:
    """Return the address of an incident's page."""
    return f"/ui/incidents/{quote(incident_id, safe='')}"


def clock(moment: datetime | None) -> str:
    """Return a UTC time to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "–"


def duration(seconds: float) -> str:
    """Return a span of time in its two largest units."""
    left = round(max(0.0, seconds))
    for unit, size, smaller, step in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if left >= size:
            return f"{left // size} {unit} {left % size // step} {smaller}"
    return f"{left} s"


def rank_span(ranks: Sequence[int], *, most: int = 6) -> str:
    """Return ascending ranks as spans: "72-79, 96"."""
    parts = [span_text(span) for span in rank_spans(ranks)]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more spans" if len(parts) > most else "")


def ratio(value: float) -> str:
    """Return a ratio to two places and a multiplication sign, a dash where it is unknown."""
    return f"{value:.2f}×" if value == value else "–"


def sentence(text: str) -> str:
    """Return `text` with a capital at its start; a name like "node-002" stays as it is."""
    return text[:1].upper() + text[1:] if text.split(" ", 1)[0].isalpha() else text


def words(name: str) -> str:
    """Return an identifier as words: slow_rank -> slow rank."""
    return name.replace("_", " ")
