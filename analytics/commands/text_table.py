"""Rows as aligned text, ages as people say them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from analytics.rank_spans import rank_spans, span_text

MINUTE, HOUR, DAY = 60, 3600, 86400


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the table as lines; columns are as wide as their widest cell."""
    lines = [headers, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def age_text(then: datetime, now: datetime) -> str:
    """Return how long ago `then` was, in one unit."""
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def ranks_text(ranks: Sequence[int], *, most: int = 8) -> str:
    """Return ranks with neighbours folded, "0-7,9"; beyond `most` spans their number instead of the rest."""
    spans = rank_spans(ranks)
    told = [span_text(span) for span in spans[:most]]
    rest = sum(last - first + 1 for first, last in spans[most:])
    return ",".join(told) + (f" and {rest} more" if rest else "")
