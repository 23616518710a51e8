"""The words and numbers of a slow_rank finding."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from analytics.detectors.suspects import Group, Suspect
from analytics.findings import CRITICAL, WARNING, Cost, Evidence, Finding, Place, spoken
from analytics.own_work import COMPUTE, OwnWork
from analytics.pipeline_replay import slowdown_of, wasted_accelerator_hours
from analytics.robust import median_along
from analytics.window import Window

Floats = NDArray[np.float64]

CAUSE_OF = {"compute": "compute", "loader": "input", "optimizer": "memory"}
WORK_OF = {"compute": "compute (forward + backward)", "loader": "waiting for input", "optimizer": "the optimizer"}
CRITICAL_SLOWDOWN = 1.10  # the job loses a tenth; source: "straggling job" of OSDI'25, S >= 1.1
FEW_PEERS_CONFIDENCE = {1: 0.7, 2: 0.85}  # with one peer "slow" and "the peer is fast" look alike
MAX_CONFIDENCE = 0.99
NEXT = {
    "compute": "check clocks, temperature, power limit and neighbours of {what}; run a short GEMM test on it beside "
    "a peer, and replace it if the test is slow too",
    "input": "look at the input pipeline on {what}: its storage, its decoding workers and the CPUs they share",
    "memory": "check memory bandwidth and ECC counters of {what} and what else runs on its host",
    "host": "check the host of {what}: CPU pressure, frequency, other processes, swapping",
}


def findings_of(window: Window, work: OwnWork, groups: list[Group], detector: str) -> list[Finding]:
    """Return a finding per group, priced alone by healing just that group, the costliest first."""
    found = [_finding(window, work, group, detector) for group in groups]
    return sorted(found, key=lambda finding: (-finding.cost.slowdown, finding.entity))


def started_at(window: Window, column: int) -> str | None:
    """Return when a column's step began as ISO 8601 in UTC, None where no clock is known."""
    began = int(window.step_unix_ns[column])
    if not 0 < began < np.iinfo(np.int64).max:
        return None
    return datetime.fromtimestamp(began / 1e9, UTC).isoformat(timespec="milliseconds")


def _finding(window: Window, work: OwnWork, group: Group, detector: str) -> Finding:
    lead = max(group.suspects, key=lambda suspect: suspect.effect)
    ranks = tuple(int(window.topology.ranks[suspect.index]) for suspect in group.suspects)
    cause = _cause(work, group)
    first = _onset(work, group)
    slowdown = slowdown_of(window, _healing(work, group, first))
    wasted = wasted_accelerator_hours(window, slowdown, first)
    culprit = spoken(group.entity)
    what = culprit if len(ranks) == 1 else f"{culprit} ({len(ranks)} ranks)"
    slower = float(np.expm1(np.median([suspect.effect for suspect in group.suspects])))
    return Finding(
        id=f"slow_rank/{cause}/{group.entity}",
        kind="slow_rank",
        cause=cause,
        ranks=ranks,
        nodes=group.nodes,
        entity=group.entity,
        severity=CRITICAL if slowdown >= CRITICAL_SLOWDOWN else WARNING,
        at=Place(rank=int(window.topology.ranks[lead.index]), step=int(window.steps[first]), op=lead.phase),
        first_step=int(window.steps[first]),
        last_step=int(window.steps[-1]),
        started_at=started_at(window, first),
        confidence=_confidence(lead, group.n_peers),
        cost=Cost(slowdown, wasted),
        summary=f"{what} takes {slower:.0%} longer than its {_peers(group.n_peers)} for its own work, most of it in "
        f"{WORK_OF[lead.cause_phase]}; everybody waits for it: the job runs {slowdown:.2f}x as long as without this",
        evidence=_evidence(window, work, group, lead, first),
        ruled_out=_ruled_out(window, work, group, lead),
        would_change_my_mind=_doubt(group, lead),
        next=NEXT[cause].format(what=culprit),
        detector=detector,
    )


def _peers(count: int) -> str:
    return f"{count} peers" if count != 1 else "only peer"


def _cause(work: OwnWork, group: Group) -> str:
    """Return the cause by the phase that exceeds most; slow input and slow optimizer together point at the host."""
    phases = [suspect.cause_phase for suspect in group.suspects]
    leading = max(sorted(set(phases)), key=phases.count)
    if leading == "compute" or not {"loader", "optimizer"} <= set(work.ratios):
        return CAUSE_OF[leading]
    other = "optimizer" if leading == "loader" else "loader"
    index = [suspect.index for suspect in group.suspects]
    first = min(suspect.first for suspect in group.suspects)
    levels = median_along(work.ratios[other][index, first:], 1)
    return "host" if np.isfinite(levels).all() and float(levels.min()) > np.log(1.2) else CAUSE_OF[leading]


def _series(work: OwnWork, group: Group) -> Floats:
    """Return the group's log ratio by step (m,) in the phase that told, the median over its ranks, 0 where unseen."""
    rows = np.stack([work.ratios[suspect.phase][suspect.index] for suspect in group.suspects])
    return np.nan_to_num(median_along(rows, 0))


def _onset(work: OwnWork, group: Group) -> int:
    """Return the column from which on the group is slow: the change point that splits best (CUSUM about half the
    excess).
    """
    series = _series(work, group)
    span = min(suspect.first for suspect in group.suspects)
    level = float(np.median(series[span:]))
    drift = np.cumsum((series - level / 2)[::-1])[::-1]  # the sum from each column to the end
    return int(np.argmax(drift))


def _healing(work: OwnWork, group: Group, first: int) -> Floats:
    """Return factors (n, m) by which each rank's own work exceeds the peers': the group's level since `first`,
    else 1.
    """
    factors = np.ones(work.raw.shape)
    for suspect in group.suspects:
        level = median_along(work.ratios[_priced(suspect)][suspect.index, first:][None], 1)[0]
        factors[suspect.index, first:] = max(float(np.exp(np.nan_to_num(level))), 1.0)
    return factors


def _priced(suspect: Suspect) -> str:
    return suspect.cause_phase


def _confidence(lead: Suspect, n_peers: int) -> float:
    certain = 1.0 - min(lead.p_value * 100, 0.5)  # 1e-4 leaves 0.99
    return round(min(certain, FEW_PEERS_CONFIDENCE.get(n_peers, MAX_CONFIDENCE), MAX_CONFIDENCE), 3)


def _evidence(window: Window, work: OwnWork, group: Group, lead: Suspect, first: int) -> tuple[Evidence, ...]:
    index = lead.index
    rank = int(window.topology.ranks[index])
    ratios = work.ratios[lead.phase][index, first:]
    level = float(np.exp(np.nanmedian(ratios)))
    parts = COMPUTE if lead.phase == "compute" else (lead.phase,)
    own = float(np.nanmedian(window.per_step(*parts)[index, first:]))
    share = float((ratios[np.isfinite(ratios)] > 0).mean())
    found = [
        Evidence("ratio_to_peers", f"rank {rank}: {lead.phase} takes {level:.3f}x its peers' median", level, "x", 1.0),
        Evidence(
            f"{lead.phase}_seconds",
            f"rank {rank}: {lead.phase} takes {own:.4g} s a step where its peers take {own / level:.4g} s",
            own,
            "s",
            own / level,
        ),
        Evidence(
            "steps_slow", f"slower than the peers' median in {share:.0%} of {len(ratios)} steps", share, "share", 0.5
        ),
        Evidence("significance", f"{lead.z:.1f} standard errors above the peers", lead.z, "sigma", 0.0),
    ]
    wait = _waiting(window, group, first)
    if wait is not None:
        found.append(wait)
    return tuple(found)


def _waiting(window: Window, group: Group, first: int) -> Evidence | None:
    if "collective" not in window.seconds:
        return None
    seconds = median_along(window.per_step("collective")[:, first:], 1)
    inside = [suspect.index for suspect in group.suspects]
    outside = np.setdiff1d(np.arange(len(seconds)), inside)
    own, others = median_along(seconds[inside][None], 1)[0], median_along(seconds[outside][None], 1)[0]
    if not (np.isfinite(own) and np.isfinite(others)):
        return None
    text = f"it spends {own:.4g} s a step in communication, the others {others:.4g} s, waits included"
    return Evidence("communication_seconds", text, float(own), "s", float(others))


def _ruled_out(window: Window, work: OwnWork, group: Group, lead: Suspect) -> tuple[str, ...]:
    texts = [f"stage partition: compared only with {_peers(group.n_peers)} of the same role"]
    raw = work.raw[lead.index, lead.first :]
    if work.shared_work and np.isfinite(raw).any():
        texts.append(
            f"sequence length: work varies alike in a replica's stages (correlation {work.shared_work:.2f}) and was "
            f"taken out; it stays {float(np.exp(np.nanmedian(raw))):.3f}x slow without that, too"
        )
    else:
        length = len(window.steps) - lead.first
        texts.append(f"a burst: slow in both halves of the last {length} steps")
    texts.append("waiting for others: communication and whole steps do not count as own work")
    return tuple(texts)


def _doubt(group: Group, lead: Suspect) -> str:
    if group.n_peers == 1:
        return "a third rank of this role that is as slow: then the only peer is fast, not this one slow"
    if lead.cause_phase == "loader":
        return "the same data served to a peer that then waits as long"
    return "a peer that is as slow on the same kind of batch, or the rank being fast when its data goes to another rank"
