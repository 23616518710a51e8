"""Neighbouring ranks become spans."""

from __future__ import annotations

from analytics.rank_spans import rank_spans, span_text


def test_neighbours_fold_and_gaps_part_whatever_the_order() -> None:
    spans = rank_spans([9, 2, 0, 1, 11, 10, 5])

    assert spans == [(0, 2), (5, 5), (9, 11)]
    assert [span_text(span) for span in spans] == ["0-2", "5", "9-11"]


def test_nobody_is_no_span() -> None:
    assert rank_spans([]) == []
