"""The detectors at work on one window; one that fails is counted and does not stop the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from analytics.findings import Finding
from analytics.window import Window

logger = logging.getLogger(__name__)


class Detector(Protocol):
    """What the engine asks of a detector; those of analytics.detectors offer it."""

    @property
    def name(self) -> str:
        """Return name/version, as `Finding.detector` has it."""

    def detect(self, window: Window) -> list[Finding]:
        """Return the findings on one window. Pure."""


class Panel:
    """Runs every detector. `failures_total` counts by detector's name."""

    def __init__(self, detectors: Sequence[Detector]) -> None:
        self._detectors = tuple(detectors)
        self._told: set[tuple[str, type[Exception]]] = set()
        self.failures_total: Counter[str] = Counter()

    def findings(self, window: Window) -> tuple[tuple[Finding, ...], frozenset[str]]:
        """Return what the detectors said, and the names (without version) of those that failed."""
        said: list[Finding] = []
        blind: set[str] = set()
        for detector in self._detectors:
            try:
                said.extend(detector.detect(window))
            except Exception as error:  # a detector is a plug-in: its bug is its own
                blind.add(detector.name.partition("/")[0])
                self.failures_total[detector.name] += 1
                self._tell(detector.name, window, error)
        return tuple(said), frozenset(blind)

    def _tell(self, name: str, window: Window, error: Exception) -> None:
        cause = (name, type(error))
        if cause in self._told:
            return
        self._told.add(cause)
        logger.exception("detector %s failed on run %s, step %s; told once", name, window.run, window.steps[-1:])
