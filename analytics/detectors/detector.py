"""What a detector is, and how much of a live run it is shown."""

from __future__ import annotations

from typing import Protocol

from analytics.findings import Finding
from analytics.window import Window

# Newest complete steps that the engine hands over. Long enough that medians of a job whose single steps scatter by
# 30-50 %
# tell a 40 % slowdown (see tests/analytics/detectors/test_noisy_small_job.py), short enough to name it within 40 steps.
LIVE_WINDOW_STEPS = 40


class Detector(Protocol):
    """A pure function from a window to findings: no clock, no I/O, no state."""

    @property
    def name(self) -> str:
        """Return name and version, as written into its findings."""

    def detect(self, window: Window) -> list[Finding]:
        """Return what is wrong in the window; it must not be changed."""
