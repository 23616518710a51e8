"""The demo's narration: each injection and healing as the truth, each incident as what flightwatch made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dashboard.demonstration.run_news import OPENED, IncidentNews


class Story:
    """Tells events as sentences through `say`, or as JSON lines through `emit`, with the seconds since their cause."""

    def __init__(
        self,
        say: Callable[[str], None],
        emit: Callable[[str], None] | None,
        *,
        monotonic: Callable[[], float],
        incident_url: str,
    ) -> None:
        self._say = say
        self._emit = emit
        self._monotonic = monotonic
        self._incident_url = incident_url
        self._injected_at: dict[str, float] = {}
        self._healed_at: dict[str, float] = {}
        self.found: list[str] = []
        self.resolved: list[str] = []
        self.false_alarms: list[str] = []

    def truth(self, event: dict[str, Any]) -> None:
        """Tell what the fleet did."""
        node, step = event.get("node"), event["step"]
        if event["event"] == "injected":
            self._injected_at[str(node)] = self._monotonic()
            self._say(f"step {step}: {node} is now {event['factor']}x slower (the truth; watch flightwatch find it)")
        elif event["event"] == "healed":
            self._healed_at[str(node)] = self._monotonic()
            self._say(f"step {step}: {node} is healed (the truth; the incident should close by itself)")
        self.note(event)

    def news(self, news: IncidentNews) -> None:
        """Tell what flightwatch found, and how long after its cause."""
        node = next((node for node in news.nodes if node in self._injected_at), None)
        opened = news.event == OPENED
        since = (self._injected_at if opened else self._healed_at).get(node or "")
        seconds = None if since is None else round(self._monotonic() - since, 1)
        if node is None and opened:
            self.false_alarms.append(news.incident)
        elif node is not None:
            (self.found if opened else self.resolved).append(node)
        told = "flightwatch opened an incident" if opened else "flightwatch closed the incident"
        after = "" if seconds is None else f" {seconds:.0f} s after the {'injection' if opened else 'healing'}"
        self._say(f"{told}{after}: {news.summary} {self._incident_url}{news.incident}")
        self.note({**asdict(news), "seconds_after_cause": seconds, "is_true": node is not None})

    def note(self, event: dict[str, Any]) -> None:
        """Emit an event as a JSON line, where that is wanted."""
        if self._emit is not None:
            self._emit(json.dumps(event))
