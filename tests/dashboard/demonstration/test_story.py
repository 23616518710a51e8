from __future__ import annotations

import json

from dashboard.demonstration.run_news import CLOSED, OPENED, IncidentNews
from dashboard.demonstration.story import Story

INJECTED = {"event": "injected", "step": 25, "node": "node-037", "factor": 1.4}
HEALED = {"event": "healed", "step": 97, "node": "node-037", "factor": 1.4}


def news(event: str, node: str = "node-037") -> IncidentNews:
    return IncidentNews(event, "01J", f"node:{node}", "slow_rank", "compute", (node,), (296,), 31, f"{node} is slow")


class Told:
    """A story with a clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.events: list[str] = []
        self.story = Story(self.lines.append, self.events.append, monotonic=lambda: self.now, incident_url="http://x/")


def test_injection_and_healing_are_told_with_their_step() -> None:
    told = Told()

    told.story.truth(INJECTED)
    told.story.truth(HEALED)

    assert told.lines[0] == "step 25: node-037 is now 1.4x slower (the truth; watch flightwatch find it)"
    assert told.lines[1].startswith("step 97: node-037 is healed")


def test_an_incident_is_told_with_the_seconds_since_its_cause() -> None:
    told = Told()
    told.story.truth(INJECTED)
    told.now = 12.0
    told.story.news(news(OPENED))
    told.now = 90.0
    told.story.truth(HEALED)
    told.now = 121.0

    told.story.news(news(CLOSED))

    assert told.lines[1] == "flightwatch opened an incident 12 s after the injection: node-037 is slow http://x/01J"
    assert "closed the incident 31 s after the healing" in told.lines[3]
    assert (told.story.found, told.story.resolved, told.story.false_alarms) == (["node-037"], ["node-037"], [])


def test_an_incident_about_a_node_that_was_never_slow_is_a_false_alarm() -> None:
    told = Told()
    told.story.truth(INJECTED)

    told.story.news(news(OPENED, "node-001"))

    assert (told.story.found, told.story.false_alarms) == ([], ["01J"])
    assert json.loads(told.events[-1])["is_true"] is False


def test_events_are_emitted_as_json_lines() -> None:
    told = Told()
    told.story.truth(INJECTED)
    told.story.news(news(OPENED))

    events = [json.loads(line) for line in told.events]

    assert events[0] == INJECTED
    assert (events[1]["event"], events[1]["nodes"], events[1]["seconds_after_cause"]) == (OPENED, ["node-037"], 0.0)
