"""Ranks told in few words: neighbours become spans."""

from __future__ import annotations

from collections.abc import Iterable


def rank_spans(ranks: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranks as (first, last) of each run of neighbours, ascending.

    Example:
        >>> rank_spans([9, 0, 1, 2])
        [(0, 2), (9, 9)]
    """
    spans: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    return spans


def span_text(span: tuple[int, int]) -> str:
    """Return "8-15", or "3" for a span of one."""
    first, last = span
    return str(first) if first == last else f"{first}-{last}"
