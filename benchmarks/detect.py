"""`python -m benchmarks.detect`: how long each detector takes on a live window of a large job, and whether it is right.

Simulated windows of 40 steps x 8 micro-batches, as the engine hands them over: one slow node of 8 ranks, alone and
beside a pipeline whose last stage has half as much work again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytics.detectors import DETECTORS, LIVE_WINDOW_STEPS, Detector
from analytics.findings import Finding
from analytics.window import Topology, Window

RANKS = (1024, 10240)
N_STAGES, N_MICRO, RANKS_PER_NODE = 4, 8, 8
SLOW_FACTOR = 1.3
SCENES = {"slow node": 1.0, "slow node, heavy stage": 1.5}  # the last stage's work
NOISE = 0.02  # sigma of the log of one op's time, with Student's tails
FORWARD_SECONDS, BACKWARD_SECONDS = 0.05, 0.10


def main() -> int:
    """Measure, print, and return 1 when a detector named anything but the slow node."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detect", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS, help="sizes of the job (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="the median of so many is told (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of all noise (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print nothing but the last line")
    args = parser.parse_args()
    result = measure(args.ranks, args.repeats, args.seed)
    if not args.json:
        print(_table(result))
    print(json.dumps(result))
    return 0 if all(row["exact"] for row in result["rows"]) else 1


def measure(sizes: list[int], repeats: int, seed: int) -> dict[str, Any]:
    """Return seconds by detector and size; the first call of each, with its imports, is told apart."""
    rows = []
    for n_ranks in sizes:
        for scene, last_stage in SCENES.items():
            window, node, ranks = job(n_ranks, seed, last_stage)
            truth: dict[str, list[tuple[str, tuple[int, ...]]]] = {
                "slow_rank": [(node, ranks)],
                "imbalance": [(f"stage:{N_STAGES - 1}", ())] * (last_stage > 1),
            }
            for detector in DETECTORS:
                expected = truth[detector.name.partition("/")[0]]
                rows.append({"scene": scene, "ranks": n_ranks, **_timed(detector, window, repeats, expected)})
    return {
        "benchmark": "detect",
        "steps": LIVE_WINDOW_STEPS,
        "micro_batches": N_MICRO,
        "slow_factor": SLOW_FACTOR,
        "repeats": repeats,
        "rows": rows,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def _timed(
    detector: Detector, window: Window, repeats: int, expected: list[tuple[str, tuple[int, ...]]]
) -> dict[str, Any]:
    seconds: list[float] = []
    findings: list[Finding] = []
    for _ in range(1 + repeats):
        began = time.perf_counter()
        findings = detector.detect(window)
        seconds.append(time.perf_counter() - began)
    return {
        "detector": detector.name.partition("/")[0],
        "seconds": round(float(np.median(seconds[1:])), 4),
        "first_seconds": round(seconds[0], 4),
        "exact": [(finding.entity, finding.ranks) for finding in findings] == expected,
        "named": [finding.entity for finding in findings],
    }


def job(n_ranks: int, seed: int, last_stage: float) -> tuple[Window, str, tuple[int, ...]]:
    """Return a window of a data x pipeline x tensor parallel job, its slow node's entity and ranks."""
    rng = np.random.default_rng(seed)
    rank = np.arange(n_ranks)
    per_replica = N_STAGES * RANKS_PER_NODE
    topology = Topology(
        rank,
        tuple(f"node-{one // RANKS_PER_NODE:05d}" for one in rank.tolist()),
        {"dp": rank // per_replica, "pp": rank % per_replica // RANKS_PER_NODE, "tp": rank % RANKS_PER_NODE},
    )
    is_last = topology.coordinates["pp"] == N_STAGES - 1
    slow = rank // RANKS_PER_NODE == n_ranks // RANKS_PER_NODE * 2 // 3

    def times(seconds: float) -> NDArray[np.float64]:
        scatter = np.exp(NOISE * rng.standard_t(5, (n_ranks, LIVE_WINDOW_STEPS, N_MICRO)))
        level = np.where(slow, SLOW_FACTOR, 1.0) * np.where(is_last, last_stage, 1.0)
        return np.asarray(seconds * scatter * level[:, None, None])

    seconds = {"forward": times(FORWARD_SECONDS), "backward": times(BACKWARD_SECONDS)}
    seconds["optimizer"] = 0.01 * np.exp(NOISE * rng.standard_t(5, (n_ranks, LIVE_WINDOW_STEPS, 1)))
    steps = np.arange(LIVE_WINDOW_STEPS)
    window = Window("benchmark", topology, steps, seconds, np.zeros(LIVE_WINDOW_STEPS, dtype=np.int64))
    return window, f"node:{topology.nodes[int(np.argmax(slow))]}", tuple(rank[slow].tolist())


def _table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['steps']} steps x {result['micro_batches']} micro-batches, one node {result['slow_factor']}x slow; "
        f"median of {result['repeats']}, Python {result['python']}, {result['cores']} cores",
        f"{'scene':<24}{'detector':<12}{'ranks':>8}{'seconds':>10}{'first':>10}  exact",
    ]
    lines += [
        f"{row['scene']:<24}{row['detector']:<12}{row['ranks']:>8,}"
        f"{row['seconds']:>10.3f}{row['first_seconds']:>10.3f}  "
        f"{'yes' if row['exact'] else 'NO: ' + ', '.join(row['named'])}"
        for row in result["rows"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
