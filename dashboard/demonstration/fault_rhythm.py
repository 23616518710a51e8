"""When the demo's nodes are slow."""

from __future__ import annotations

from dataclasses import dataclass

from flightwatch.errors import FlightwatchError

SLOW_FACTOR = 1.4
# Own choice: long enough to see a healthy job first, an incident open, close, and a pause before the next one.
HEALTHY_SECONDS = 30.0
SLOW_SECONDS = 90.0
REST_SECONDS = 60.0
# A node x1.4 slower makes the default job's steps 3 % (first stage) to 16 % (last stage) longer; the mean, simulated.
STEP_STRETCH = 1.08


@dataclass(frozen=True, slots=True)
class FaultRhythm:
    """Steps before the first fault, of each fault, and between two."""

    healthy_steps: int
    slow_steps: int
    rest_steps: int

    @classmethod
    def for_steps_of(cls, step_seconds: float) -> FaultRhythm:
        """Return the demo's rhythm for steps of this length."""
        return cls(
            max(round(HEALTHY_SECONDS / step_seconds), 1),
            max(round(SLOW_SECONDS / STEP_STRETCH / step_seconds), 1),
            max(round(REST_SECONDS / step_seconds), 1),
        )

    @classmethod
    def parse(cls, text: str) -> FaultRhythm:
        """Return the rhythm that H:S:R describes.

        Raises:
            FlightwatchError: it is something else.
        """
        parts = text.split(":")
        if len(parts) != 3 or not all(part.isdigit() for part in parts) or int(parts[1]) < 1:
            raise FlightwatchError(f"--rhythm takes healthy:slow:rest in steps, such as 25:75:60, not {text!r}")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.healthy_steps}:{self.slow_steps}:{self.rest_steps}"

    def cycle_seconds(self, step_seconds: float) -> float:
        """Return about how long it takes from the start to the end of the rest after the first fault."""
        return (self.healthy_steps + STEP_STRETCH * self.slow_steps + self.rest_steps) * step_seconds
