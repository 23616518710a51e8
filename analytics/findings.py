"""The one record that every detector yields, live and on files, and its JSON form flightwatch.findings/1."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = "flightwatch.findings/1"

CRITICAL = "critical"
WARNING = "warning"
INFO = "info"


def spoken(entity: str) -> str:
    """Return an entity as people say it: "rank:0" is rank 0, and a node's name may say by itself that it is one."""
    kind, _, name = entity.partition(":")
    says_so = bool(name) and name.lower().startswith(kind)
    return name if says_so else f"{kind} {name}".rstrip()


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the program: every part that is known."""

    rank: int | None = None
    step: int | None = None
    microbatch: int | None = None
    module: str | None = None
    op: str | None = None
    line: str | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What it costs: the job's time over its time with this suspect healed, and the accelerator-hours lost so far."""

    slowdown: float = 1.0
    wasted_accelerator_hours: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured fact behind a verdict, beside what is normal."""

    kind: str
    text: str
    value: float
    unit: str
    baseline: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One detector's verdict. `evict` is true only for hardware verdicts with enough evidence."""

    id: str
    kind: str
    cause: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    entity: str
    severity: str
    first_step: int
    last_step: int
    confidence: float
    summary: str
    next: str
    detector: str
    at: Place = field(default_factory=Place)
    started_at: str | None = None
    evict: bool = False
    cost: Cost = field(default_factory=Cost)
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[str, ...] = ()
    would_change_my_mind: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON types."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Input:
    """What was looked at."""

    kind: str
    run: str
    ranks: int
    steps: tuple[int, int]
    missing_ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All findings on one input, and what could not be seen."""

    input: Input
    findings: tuple[Finding, ...]
    coverage: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the report in schema flightwatch.findings/1."""
        return {
            "schema": SCHEMA,
            "input": asdict(self.input),
            "findings": [finding.to_json() for finding in self.findings],
            "coverage": self.coverage,
        }
