"""Detectors: pure functions from a window to findings. A new one is one new file and one line in DETECTORS.

Words: a *role* is what ranks must share to be compared; *own work* is what a rank does without waiting for others;
the *effect* is the log of own work over the peers'; a *suspect* is a rank that holds every test.
"""

from __future__ import annotations

from analytics.detectors.detector import LIVE_WINDOW_STEPS, Detector
from analytics.detectors.imbalance import Imbalance
from analytics.detectors.slow_rank import SlowRank

DETECTORS: tuple[Detector, ...] = (SlowRank(), Imbalance())

__all__ = ["DETECTORS", "LIVE_WINDOW_STEPS", "Detector"]
