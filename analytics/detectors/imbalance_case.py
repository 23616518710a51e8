"""One way in which work is dealt out unevenly, with its price."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.findings import Evidence


@dataclass(frozen=True, slots=True)
class Case:
    """An imbalance as found: `slowdown` is the job's time over its time with the work dealt out evenly."""

    cause: str
    entity: str
    slowdown: float
    confidence: float
    claim: str
    evidence: tuple[Evidence, ...]
    ruled_out: tuple[str, ...]
    doubt: str
    advice: str
