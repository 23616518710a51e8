"""Diagnosis of one op trace: the live detectors on its window, priced by replay of its op graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from analytics.detectors import DETECTORS
from analytics.findings import Cost, Evidence, Finding, Input, Report
from analytics.sufficiency import insufficient_evidence
from analytics.trace_window import window_of
from analytics.whatif import WhatIf
from analytics.window import Window
from collector.ingest import straggler_trace
from collector.ingest.straggler_trace import StragglerTrace

NOT_SEEN = (
    "nodes: the trace names none, so that slow ranks cannot be joined to one",
    "ranks inside tensor-parallel groups: one of each was traced",
    "waits for input and launch gaps: the trace holds no such ops",
    "hardware counters: none are in the trace, so that no verdict evicts",
    "slow links: transfer times are replayed, but no detector looks at them yet",
)


def diagnose_trace(trace: StragglerTrace) -> Report:
    """Return the report on one trace; pure."""
    window = window_of(trace)
    whatif = WhatIf.of(trace)
    findings = [finding for detector in DETECTORS for finding in detector.detect(window)]
    if whatif is not None:
        findings = [_priced(finding, window, whatif) for finding in findings]
    return Report(
        input=Input(
            kind=straggler_trace.KIND,
            run=trace.name,
            ranks=len(window.topology.ranks),
            steps=(int(window.steps[0]), int(window.steps[-1])),
        ),
        findings=tuple(findings),
        coverage=_coverage(trace, window, whatif),
    )


def _priced(finding: Finding, window: Window, whatif: WhatIf) -> Finding:
    """Return a finding on ranks with the price of the op graph's replay, which knows each transfer, in place of
    the window's.
    """
    if not finding.ranks:
        return finding
    slowdown = whatif.slowdown_by(finding.ranks)
    seconds = whatif.seconds * len(window.steps) * len(window.topology.ranks)
    inside = np.isin(whatif.grid.ranks, finding.ranks)
    worker = float(whatif.worker_slowdowns[inside].max()) if inside.any() else 1.0
    text = f"the job would run {worker:.3f}x its ideal time if all ranks but these were ideal (S_w)"
    return replace(
        finding,
        cost=Cost(slowdown, seconds * (1 - 1 / slowdown) / 3600),
        summary=finding.summary.replace(f"{finding.cost.slowdown:.2f}x as long", f"{slowdown:.2f}x as long"),
        evidence=(*finding.evidence, Evidence("worker_slowdown", text, worker, "x", 1.0)),
    )


def _coverage(trace: StragglerTrace, window: Window, whatif: WhatIf | None) -> dict[str, Any]:
    seen = {phase: float(np.isfinite(window.per_step(phase)).mean()) for phase in window.seconds}
    coverage: dict[str, Any] = {
        "phases": {phase: round(share, 4) for phase, share in seen.items()},
        "ops": len(trace.rank),
        "steps": len(window.steps),
        "detectors": [detector.name for detector in DETECTORS],
        "unknown_ops": list(trace.unknown_optypes),
        "insufficient_evidence": list(insufficient_evidence(window)),
        "not_seen": list(NOT_SEEN),
    }
    if whatif is None:
        coverage["what_if"] = None
        coverage["not_seen"].append("the step's graph: this schedule cannot be replayed, so that prices are coarser")
        return coverage
    coverage["places_without_rank"] = np.argwhere(whatif.grid.ranks < 0).tolist()
    coverage["what_if"] = {
        "seconds_per_step": whatif.seconds,
        "ideal_seconds_per_step": whatif.ideal_seconds,
        "slowdown": whatif.slowdown,
        "worker_share": whatif.worker_share,
        "last_stage_share": whatif.last_stage_share,
    }
    return coverage
