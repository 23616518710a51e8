"""How long the parts of one step would take if nobody waited for anybody: nominal times, offsets, noise, faults."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleet.topology import Topology

Seconds = NDArray[np.float64]

# Shares of a step, own choice, near those of a well-tuned dense model on one node per tensor group.
LOADER_SHARE = 0.01
GRADIENT_SHARE = 0.04
OPTIMIZER_SHARE = 0.02
PIPELINE_SHARE = 0.87  # the rest is what the slowest of many noisy peers adds
TENSOR_REDUCE_SHARE = 0.04  # of one micro-batch's forward and backward, for each of the two
HANDOVER_SHARE = 0.01
FORWARD_SHARE = 0.30
BACKWARD_SHARE = 0.60

# Noise, own choice: a body of 2 %, and a few per cent of ops well above it.
BODY_SIGMA = 0.02
TAIL_PROBABILITY = 0.03
TAIL_MEAN = 0.06
RANK_SIGMA = 0.01  # a rank's lasting offset
NETWORK_SIGMA = 0.10
STAGE_IMBALANCE = 0.02  # the last stage has the head: this much more than the mean


@dataclass(frozen=True, slots=True)
class StepDurations:
    """Seconds of every part of one step. Passes are indexed by direction * n_micro + micro.

    loader, optimizer: (pp, dp, tp); compute, handover: (pp, 2 n_micro, dp, tp); tensor_reduce: (pp, 2 n_micro, dp);
    gradient_reduce: (pp, tp). `handover` is the transfer into the stage; unused where a stage receives nothing.
    """

    loader: Seconds
    compute: Seconds
    handover: Seconds
    tensor_reduce: Seconds
    gradient_reduce: Seconds
    optimizer: Seconds


class DurationModel:
    """Draws the durations of step after step from one seed."""

    def __init__(self, topology: Topology, n_micro: int, step_seconds: float, seed: int) -> None:
        self._topology = topology
        self._n_micro = n_micro
        self._step_seconds = step_seconds
        self._rng = np.random.default_rng(seed)
        offsets = np.exp(RANK_SIGMA * self._rng.standard_normal(topology.shape))
        self._rank_offsets = offsets * _stage_levels(topology.pp)[:, None, None]

    def draw(self, slowdown: Seconds | None = None) -> StepDurations:
        """Return the next step's durations.

        Args:
            slowdown: (pp, dp, tp), >= 1: factor on each rank's forward, backward and optimizer; None: nobody is slow.
        """
        pp, dp, tp = self._topology.shape
        passes = 2 * self._n_micro
        factor = self._rank_offsets if slowdown is None else self._rank_offsets * slowdown
        micro_seconds = self._step_seconds * PIPELINE_SHARE / (self._n_micro + pp - 1)
        nominal = np.repeat([FORWARD_SHARE, BACKWARD_SHARE], self._n_micro)[None, :, None, None] * micro_seconds
        return StepDurations(
            loader=self._step_seconds * LOADER_SHARE * self._jitter((pp, dp, tp), NETWORK_SIGMA),
            compute=nominal * factor[:, None] * self._noise((pp, passes, dp, tp)),
            handover=micro_seconds * HANDOVER_SHARE * self._jitter((pp, passes, dp, tp), NETWORK_SIGMA),
            tensor_reduce=micro_seconds * TENSOR_REDUCE_SHARE * self._jitter((pp, passes, dp), NETWORK_SIGMA),
            gradient_reduce=self._step_seconds * GRADIENT_SHARE * self._jitter((pp, tp), NETWORK_SIGMA),
            optimizer=self._step_seconds * OPTIMIZER_SHARE * factor * self._noise((pp, dp, tp)),
        )

    def _jitter(self, shape: tuple[int, ...], sigma: float) -> Seconds:
        return np.exp(sigma * self._rng.standard_normal(shape))

    def _noise(self, shape: tuple[int, ...]) -> Seconds:
        noise = self._jitter(shape, BODY_SIGMA)
        tail = np.flatnonzero(self._rng.random(noise.size) < TAIL_PROBABILITY)
        noise.reshape(-1)[tail] *= 1.0 + self._rng.exponential(TAIL_MEAN, len(tail))
        return noise


def _stage_levels(n_stages: int) -> Seconds:
    levels = np.ones(n_stages)
    if n_stages > 1:
        levels[-1] += STAGE_IMBALANCE
        levels[0] -= STAGE_IMBALANCE
    return levels
