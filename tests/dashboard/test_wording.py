from __future__ import annotations

import pytest

from dashboard.wording import duration, incident_path, rank_span, ratio, run_path, sentence


def test_ranks_are_told_as_spans() -> None:
    assert rank_span([72, 73, 74, 96, 71]) == "71-74, 96"
    assert rank_span(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10 and 14 more spans"
    assert rank_span([]) == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5 s"), (65, "1 min 5 s"), (7260, "2 h 1 min"), (90_000, "1 d 1 h"), (-3, "0 s")]
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_unknown_ratio_is_a_dash() -> None:
    assert [ratio(1.4), ratio(float("nan"))] == ["1.40×", "–"]


def test_names_with_slashes_and_blanks_stay_one_part_of_the_address() -> None:
    assert run_path("team/exp 7?") == "/ui/runs/team%2Fexp%207%3F"
    assert incident_path("01A") == "/ui/incidents/01A"


def test_a_sentence_begins_with_a_capital_but_a_nodes_name_is_left_alone() -> None:
    assert sentence("rank 2 takes longer") == "Rank 2 takes longer"
    assert sentence("node-002 (8 ranks) takes longer") == "node-002 (8 ranks) takes longer"
    assert sentence("") == ""
