"""Imbalance: unequal work that no machine is to blame for, by sequence length or by the partition into stages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analytics.detectors.imbalance_case import Case
from analytics.detectors.sequence_length import sequence_length
from analytics.detectors.slow_rank import MIN_STEPS, SlowRank
from analytics.detectors.slow_rank_report import started_at
from analytics.detectors.stage_partition import stage_partition
from analytics.findings import INFO, WARNING, Cost, Evidence, Finding, Place
from analytics.own_work import COMPUTE
from analytics.pipeline_replay import wasted_accelerator_hours
from analytics.ratios import peer_log_ratios
from analytics.robust import median_along
from analytics.roles import roles_of
from analytics.window import Window

NAME = "imbalance/1"
MIN_SLOWDOWN = 1.08  # imbalance is a choice of the user's: told from about a tenth on
WARNING_SLOWDOWN = 1.25


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Names the one kind of unequal work that costs most, after slow machines have been taken out.

    Fails where micro-batches are not told (sequence length then shows only between steps) and where stages are not
    told.
    Blames no machine and never evicts. Cost: as slow_rank, once more.

    Example:
        >>> import numpy as np
        >>> from analytics.window import Topology, Window
        >>> seconds = np.random.default_rng(0).lognormal(0.0, 0.01, (8, 20, 4))
        >>> seconds[4:] *= 1.5  # the second of two stages has half as much work again
        >>> where = {"dp": np.tile(np.arange(4), 2), "pp": np.repeat([0, 1], 4)}
        >>> window = Window("run", Topology(np.arange(8), ("",) * 8, where), np.arange(20),
        ...                 {"forward": seconds, "backward": 2 * seconds}, np.zeros(20, dtype=np.int64))
        >>> [(f.cause, f.entity, f.ranks) for f in Imbalance().detect(window)]
        [('stage_partition', 'stage:1', ())]
    """

    name: str = NAME

    def detect(self, window: Window) -> list[Finding]:
        """Return at most one finding: of several imbalances the costliest, the others are in its evidence."""
        if len(window.topology.ranks) < 2 or len(window.steps) < MIN_STEPS:
            return []
        cases = _cases(window)
        if cases:  # priced only now: a slow machine may hide what an imbalance costs, as well as look like one
            healed = without_slow_ranks(window)
            cases = cases if healed is window else _cases(healed)
        cases = [case for case in cases if case.slowdown >= MIN_SLOWDOWN]
        return [_finding(window, cases[0], cases[1:], self.name)] if cases else []


def _cases(window: Window) -> list[Case]:
    """Return the imbalances that show at all, the costliest first."""
    roles = roles_of(window.topology, window)
    found = [case for case in (sequence_length(window, roles), stage_partition(window)) if case is not None]
    return sorted(found, key=lambda case: -case.slowdown)


def without_slow_ranks(window: Window) -> Window:
    """Return the window without its slow ranks' excess, so that a sick machine does not pass for a heavy stage."""
    findings = SlowRank().detect(window)
    if not findings:
        return window
    sick = np.isin(window.topology.ranks, [rank for finding in findings for rank in finding.ranks])
    roles = roles_of(window.topology, window)
    seconds = dict(window.seconds)
    for phase in COMPUTE:
        if phase not in seconds:
            continue
        cube = seconds[phase]
        flat = cube.reshape(len(cube), -1)
        level = median_along(peer_log_ratios(flat, roles), 1)
        level = np.where(sick & np.isfinite(level), level, 0.0)
        seconds[phase] = cube / np.exp(level)[:, None, None]
    return Window(window.run, window.topology, window.steps, seconds, window.step_unix_ns)


def _finding(window: Window, case: Case, others: list[Case], detector: str) -> Finding:
    also = tuple(
        Evidence(f"also_{other.cause}", f"also there, and cheaper: {other.claim}", other.slowdown, "x", 1.0)
        for other in others
    )
    return Finding(
        id=f"imbalance/{case.cause}/{case.entity}",
        kind="imbalance",
        cause=case.cause,
        ranks=(),
        nodes=(),
        entity=case.entity,
        severity=WARNING if case.slowdown >= WARNING_SLOWDOWN else INFO,
        at=Place(step=int(window.steps[0])),
        first_step=int(window.steps[0]),
        last_step=int(window.steps[-1]),
        started_at=started_at(window, 0),
        confidence=round(case.confidence, 3),
        cost=Cost(case.slowdown, wasted_accelerator_hours(window, case.slowdown, 0)),
        summary=f"{case.claim}; evenly dealt, the job would run {case.slowdown:.2f}x as fast. No machine is at fault",
        evidence=(*case.evidence, *also),
        ruled_out=case.ruled_out,
        would_change_my_mind=case.doubt,
        next=case.advice,
        detector=detector,
    )
