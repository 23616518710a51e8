"""Slow ranks and nodes: own work above that of the peers, steadily, by an effect that matters and a test that holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.detectors import slow_rank_report as report
from analytics.detectors.suspects import Suspect, cluster_levels, grouped, undecided
from analytics.findings import Finding
from analytics.own_work import COMPUTE, OWN_PHASES, OwnWork, own_work_of
from analytics.robust import MEDIAN_TO_MEAN_SE, correlated_steps, false_discovery, median_along, sigma_along
from analytics.roles import roles_of
from analytics.window import Window

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NAME = "slow_rank/1"

# What matters: own work 3 % above the peers'. Source: reference detectors stop at 10-15 %; 3 % is three times the
# spread
# of healthy ranks (0.3-0.8 %) in public production traces.
MIN_EFFECT = float(np.log(1.03))
# Share of false names among all ever named. A pass looks at every rank every few seconds for weeks, so it must be tiny:
# 1e-4
# leaves z > 4.4 for 4 ranks and z > 5.6 for 10,000.
FALSE_DISCOVERY_RATE = 1e-4
MIN_STEPS = 8  # fewer steps cannot tell persistence from a burst
# Newest steps looked at: all of the window, then its half, then its quarter, so that strong faults are named early.
SPANS = (1.0, 0.5, 0.25)
MIN_SHARE_SLOW = (0.65, 0.75, 0.9)  # share of a span's steps above the peers; a shorter span must be purer
MIN_RANKS_FOR_SPREAD = 7  # fewer ranks do not tell how far healthy ranks differ
# A few ranks cannot tell how far healthy ones differ where work varies. The SE trace says: by 3.5 % of its variation.
MANY_RANKS = 16
SHARE_OF_VARIATION = 0.05
SEPARATION = 1.4  # ranks on trial stand out from the next by this factor of effect; own choice
MAX_TOGETHER = 4  # ranks tried at once
MAX_RANKS_FOR_TRIAL = 64  # beyond, one rank shifts no median that matters
MAX_TRIALS = 8
HALF = 0.5  # each half of the span, and the raw ratio, must show at least this share of the effect


@dataclass(frozen=True, slots=True)
class SlowRank:
    """Names ranks or nodes whose own work is steadily slower than that of their peers.

    Fails when a rank has no peers, when half or more of the peers are slow (it then declines to choose), and on faults
    that only communication shows. Ranks with persistently more work of the same kind look slow unless other stages of
    their replica tell. Cost: O(n m k log n) time, O(n m k) memory; 10,000 ranks x 25 steps x 8 micro-batches take
    about 1 s.

    Example:
        >>> import numpy as np
        >>> from analytics.window import Topology, Window
        >>> noise = np.random.default_rng(0).lognormal(0.0, 0.02, (4, 40, 1))
        >>> noise[2] *= 1.3
        >>> topology = Topology(np.arange(4), ("a", "b", "c", "d"), {"dp": np.arange(4)})
        >>> window = Window("run", topology, np.arange(40), {"forward": noise}, np.zeros(40, dtype=np.int64))
        >>> [(f.entity, f.cause, round(f.cost.slowdown, 1)) for f in SlowRank().detect(window)]
        [('rank:2', 'compute', 1.3)]
    """

    name: str = NAME

    def detect(self, window: Window) -> list[Finding]:
        """Return one finding per slow node or rank, the costliest first."""
        if not _can_be_judged(window):
            return []
        roles = roles_of(window.topology, window)
        work, suspects = _search(window, roles)
        return report.findings_of(window, work, grouped(window, roles, suspects), self.name)


def undecided_ranks(window: Window) -> tuple[int, ...]:
    """Return ranks that are slower than the others of their role, but too many of it for anyone to say who is at
    fault.
    """
    if not _can_be_judged(window):
        return ()
    roles = roles_of(window.topology, window)
    _, suspects = _search(window, roles)
    return tuple(int(window.topology.ranks[suspect.index]) for suspect in undecided(window, roles, suspects))


def _can_be_judged(window: Window) -> bool:
    is_timed = any(phase in window.seconds for phase in OWN_PHASES)
    return len(window.topology.ranks) >= 2 and len(window.steps) >= MIN_STEPS and is_timed


def _search(window: Window, roles: NDArray[np.int64]) -> tuple[OwnWork, list[Suspect]]:
    """Return own work and the suspects in it, once the suspects no longer count as peers.

    Among few ranks a slow one blurs its own picture: it shifts the median of its peers, and their shifts pass for
    healthy
    spread. So the likeliest rank is left out on trial, and stays out if it then holds every test; then the next.
    """
    n_ranks = len(roles)
    work = own_work_of(window, roles)
    suspects, likeliest = _suspects(window, work, np.zeros(n_ranks, dtype=bool))
    if n_ranks > MAX_RANKS_FOR_TRIAL:
        return work, suspects
    accepted = {suspect.index for suspect in suspects}
    for _ in range(MAX_TRIALS):
        if accepted:
            work, suspects, likeliest = _without(window, roles, accepted)
        for tried in likeliest:
            _, found, _ = _without(window, roles, accepted | tried)
            held = tried & {suspect.index for suspect in found}
            if held:
                accepted = accepted | held
                break
        else:
            break
    return work, suspects


def _without(
    window: Window, roles: NDArray[np.int64], indices: set[int]
) -> tuple[OwnWork, list[Suspect], list[set[int]]]:
    excluded = np.isin(np.arange(len(roles)), sorted(indices))
    work = own_work_of(window, roles, excluded)
    return work, *_suspects(window, work, excluded)


def _suspects(window: Window, work: OwnWork, excluded: Flags) -> tuple[list[Suspect], list[set[int]]]:
    """Return the suspects, and the likeliest others: in each span, those that stand apart."""
    n_steps = len(window.steps)
    noise = {phase: _noise(ratios) for phase, ratios in work.ratios.items()}
    found: dict[int, Suspect] = {}
    likeliest: list[set[int]] = []
    for span, share in zip(SPANS, MIN_SHARE_SLOW, strict=True):
        length = round(n_steps * span)
        if length < MIN_STEPS:
            break
        looked = _Span(window, work, noise, n_steps - length, share, excluded)
        suspects, effect = looked.suspects()
        for suspect in suspects:
            found.setdefault(suspect.index, suspect)
        apart = _standing_apart(np.where(excluded | ~np.isfinite(effect), -np.inf, effect))
        if apart and apart not in likeliest:
            likeliest.append(apart)
    return sorted(found.values(), key=lambda suspect: suspect.index), likeliest


def _standing_apart(effect: Floats) -> set[int]:
    """Return the fewest ranks of the largest effect after which a gap follows, empty where there is none that
    matters.
    """
    order = np.argsort(-effect)
    for count in range(1, min(MAX_TOGETHER, len(order) // 2) + 1):
        last, following = float(effect[order[count - 1]]), float(effect[order[count]])
        if last < MIN_EFFECT:
            break
        if last >= SEPARATION * max(following, 0.0):
            return set(order[:count].tolist())
    return set()


def _noise(ratios: Floats) -> tuple[float, float]:
    """Return the sigma of one step's log ratio, and the steps that one independent step takes, over the whole
    window.
    """
    seen = np.isfinite(ratios).sum(axis=1) >= MIN_STEPS
    if not seen.any():
        return 0.0, 1.0
    return float(np.nanmedian(sigma_along(ratios[seen], 1))), correlated_steps(ratios[seen])


class _Span:
    """The newest steps of a window, from column `first` on."""

    def __init__(
        self,
        window: Window,
        work: OwnWork,
        noise: dict[str, tuple[float, float]],
        first: int,
        share: float,
        excluded: Flags,
    ) -> None:
        self.excluded = excluded
        self.window, self.work, self.noise, self.first, self.share = window, work, noise, first, share
        self.level = {phase: median_along(ratios[:, first:], 1) for phase, ratios in work.ratios.items()}
        self.z = {phase: self._z(phase) for phase in work.ratios}

    def suspects(self) -> tuple[list[Suspect], Floats]:
        """Return the ranks that hold every test, and each rank's effect (n,)."""
        excess, expected = self._excess_seconds()
        names = [phase for phase in excess if phase not in COMPUTE]  # "compute" stands for its two parts
        total = np.sum([expected[phase] for phase in names], axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            effect = np.log1p(np.sum([excess[phase] for phase in names], axis=0) / total)
            matters = {phase: excess[phase] / total >= HALF * MIN_EFFECT for phase in excess}
        phases = list(self.z)
        z = np.stack([np.where(np.isfinite(self.z[phase]), self.z[phase], -np.inf) for phase in phases])
        z = np.where(np.stack([matters[phase] for phase in phases]) | ~np.isfinite(z), z, np.minimum(z, 0.0))
        best, strongest = z.argmax(axis=0), z.max(axis=0)
        p_values = self._p_values(strongest, len(phases))
        if false_discovery(
            p_values, FALSE_DISCOVERY_RATE
        ).any():  # else no cluster can hold either: its median is no higher
            p_values = self._p_values(cluster_levels(z, effect >= HALF * MIN_EFFECT), len(phases))
        holds = false_discovery(p_values, FALSE_DISCOVERY_RATE) & (effect >= MIN_EFFECT)
        cause = np.stack([excess[phase] for phase in names]).argmax(axis=0)
        suspects = [
            Suspect(
                index=int(i),
                phase=phases[best[i]],
                cause_phase=names[cause[i]],
                effect=float(effect[i]),
                z=float(strongest[i]),
                p_value=float(p_values[i]),
                first=self.first,
            )
            for i in np.flatnonzero(holds)
            if self._persists(int(i), phases[best[i]], names[cause[i]])
        ]
        return suspects, effect

    @staticmethod
    def _p_values(z: Floats, n_phases: int) -> Floats:
        """Return p-values (n,); the strongest of several phases and spans was picked, so Bonferroni over these."""
        p_values = np.minimum(normal_tail(z) * n_phases * len(SPANS), 1.0)
        return np.where(np.isfinite(z), p_values, np.nan)

    def _z(self, phase: str) -> Floats:
        """Return how many standard errors each rank's median log ratio lies above its peers, NaN where unseen."""
        ratios = self.work.ratios[phase][:, self.first :]
        level = self.level[phase]
        sigma, correlated = self.noise[phase]
        count = np.isfinite(ratios).sum(axis=1)
        own = np.fmax(sigma_along(ratios, 1), sigma)
        error = MEDIAN_TO_MEAN_SE * own * np.sqrt(correlated / np.maximum(count, 1))
        known = np.isfinite(level)
        healthy = level[known & ~self.excluded]
        if len(healthy) >= MIN_RANKS_FOR_SPREAD:
            # Healthy ranks differ a little for ever; no number of steps makes that a fault.
            error = np.maximum(error, float(sigma_along(healthy[None], 1)[0]))
        if len(healthy) < MANY_RANKS:
            error = np.maximum(error, SHARE_OF_VARIATION * self.work.variation)
        # The floor keeps noiseless (simulated) times from dividing by 0; far below any effect that matters.
        score = level / np.maximum(error, 1e-4)
        if len(healthy) < MANY_RANKS:  # their noise was itself estimated from few steps
            score = student_to_normal(score, np.maximum(count / correlated - 1, 1.0))
        return np.where(known & (count >= MIN_STEPS), score, np.nan)

    def _excess_seconds(self) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return seconds per step above the peers', and the peers' seconds, by phase, each (n,)."""
        excess, expected = {}, {}
        for phase, levels in self.level.items():
            parts = COMPUTE if phase == "compute" else (phase,)
            own = median_along(self.window.per_step(*parts)[:, self.first :], 1)
            level = np.where(np.isfinite(levels), levels, 0.0)
            expected[phase] = np.where(np.isfinite(own), own * np.exp(-level), 0.0)
            excess[phase] = np.where(np.isfinite(own), own - expected[phase], 0.0)
        return excess, expected

    def _persists(self, index: int, phase: str, cause: str) -> bool:
        """Return whether the rank is slow early and late in the span, in most steps, and not by its work alone."""
        series = self.work.ratios[phase][index, self.first :]
        series = series[np.isfinite(series)]
        middle = len(series) // 2
        early, late = float(np.median(series[:middle])), float(np.median(series[middle:]))
        needed = HALF * float(self.level[phase][index])
        raw = self.work.raw[index, self.first :]
        raw_level = float(np.nanmedian(raw)) if cause == "compute" and np.isfinite(raw).any() else np.inf
        return (
            min(early, late) >= needed
            and float((series > 0).mean()) >= self.share
            and raw_level >= HALF * float(self.level["compute"][index])
        )


def normal_tail(z: Floats) -> Floats:
    """Return the probability that a standard normal exceeds each `z`; scipy's takes a second to import, this 2 ms
    for 10,000.
    """
    return np.array([math.erfc(value / math.sqrt(2)) / 2 for value in z.tolist()])


def student_to_normal(t: Floats, freedom: Floats) -> Floats:
    """Return the normal z that is as rare as Student's `t` with `freedom` degrees; within 0.1 for freedom >= 5.

    Source: Wallace 1959, doi:10.1214/aoms/1177706095.
    """
    scale = (8 * freedom + 1) / (8 * freedom + 3)
    return np.asarray(np.sign(t) * scale * np.sqrt(freedom * np.log1p(t * t / freedom)))
