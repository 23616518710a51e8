"""Text for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from analytics.commands.text_table import age_text, ranks_text, text_table

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (172800, "2 d")],
)
def test_an_age_has_one_unit(seconds: int, expected: str) -> None:
    assert age_text(NOW - timedelta(seconds=seconds), NOW) == expected


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([], ""),
        ([2], "2"),
        ([0, 1, 2, 3], "0-3"),
        ([9, 0, 1], "0-1,9"),
        (list(range(0, 40, 2)), "0,2,4,6,8,10,12,14 and 12 more"),
    ],
)
def test_ranks_are_folded(ranks: list[int], expected: str) -> None:
    assert ranks_text(ranks) == expected


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert text_table(("A", "B"), [("long", "x"), ("s", "")]) == "A     B\nlong  x\ns"
