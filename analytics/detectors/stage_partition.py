"""Stage partition: pipeline stages with unequal compute, alike on all ranks of a stage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analytics.detectors.imbalance_case import Case
from analytics.findings import Evidence
from analytics.own_work import COMPUTE
from analytics.pipeline_replay import slowdown_against
from analytics.robust import median_along, sigma_along
from analytics.window import Window

Floats = NDArray[np.float64]

MIN_RANKS = 2  # of the heavy stage: a single one cannot be told from a slow machine
MIN_STAGE_SPREAD = 0.05  # log, of the slowest stage over the mean; own choice: half of what is worth telling


def stage_partition(window: Window) -> Case | None:
    """Return the case, or None where stages are not told, are alike, or differ less than the ranks within them."""
    stage = window.topology.coordinates.get("pp")
    if stage is None or len(np.unique(stage)) < 2 or (stage < 0).any():
        return None
    per_rank = median_along(window.per_step(*COMPUTE), 1)
    stages = np.unique(stage)
    levels = np.array([median_along(per_rank[stage == one][None], 1)[0] for one in stages])
    if not np.isfinite(levels).all() or (levels <= 0).any():
        return None
    heavy = int(np.argmax(levels))
    if np.isfinite(per_rank[stage == stages[heavy]]).sum() < MIN_RANKS:
        return None
    excess = float(np.log(levels[heavy] / levels.mean()))
    agree = [float(sigma_along(np.log(per_rank[stage == one])[None], 1)[0]) for one in stages]
    agreement = float(np.nanmax(agree))
    # Ranks of one stage must agree better than the stages differ, else it is not the partition.
    if excess < MIN_STAGE_SPREAD or not agreement < excess:
        return None
    factor = np.ones(len(per_rank))
    for one, level in zip(stages, levels, strict=True):
        factor[stage == one] = level / levels.mean()
    even = {phase: window.seconds[phase] / factor[:, None, None] for phase in COMPUTE if phase in window.seconds}
    slowdown = slowdown_against(window, even)
    table = ", ".join(f"stage {one}: {level:.4g} s" for one, level in zip(stages.tolist(), levels, strict=True))
    evidence = (
        Evidence(
            "stage_seconds",
            f"compute a step by stage: {table}",
            float(levels[heavy]),
            "s",
            float(levels.mean()),
        ),
        Evidence(
            "agreement_within_stages",
            f"ranks of one stage differ by {agreement:.1%} at most, stage {stages[heavy]} exceeds the mean by "
            f"{np.expm1(excess):.0%}",
            agreement,
            "log ratio",
            excess,
        ),
    )
    share = float(np.expm1(excess))
    return Case(
        cause="stage_partition",
        entity=f"stage:{int(stages[heavy])}",
        slowdown=slowdown,
        confidence=float(np.clip(1 - agreement / excess, 0.5, 0.99)),
        claim=f"stage {stages[heavy]} of {len(stages)} has {share:.0%} more compute than the average, on all its ranks",
        evidence=evidence,
        ruled_out=(f"slow machines: the ranks of one stage agree within {agreement:.1%}",),
        doubt="the same stage being no slower when its layers run on other machines",
        advice=f"move layers away from stage {stages[heavy]} (embedding, head and loss count too)",
    )
