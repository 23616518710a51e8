from __future__ import annotations

import pytest

from dashboard.demonstration.fault_rhythm import FaultRhythm
from flightwatch.errors import FlightwatchError


def test_rhythm_lasts_as_long_whatever_the_length_of_a_step() -> None:
    for step_seconds in (0.25, 1.0, 2.0):
        assert FaultRhythm.for_steps_of(step_seconds).cycle_seconds(step_seconds) == pytest.approx(180, abs=4)


def test_very_long_steps_still_give_a_fault_of_one_step() -> None:
    assert FaultRhythm.for_steps_of(500.0) == FaultRhythm(1, 1, 1)


def test_text_form_is_what_the_fleet_takes() -> None:
    assert str(FaultRhythm.parse("25:75:60")) == "25:75:60"


@pytest.mark.parametrize("text", ["25", "25:75", "25:0:60", "a:b:c", "1:2:3:4", "-1:2:3", ""])
def test_what_is_no_rhythm_is_refused(text: str) -> None:
    with pytest.raises(FlightwatchError, match="--rhythm takes healthy:slow:rest"):
        FaultRhythm.parse(text)
