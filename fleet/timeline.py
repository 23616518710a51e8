"""When everything in a step happens, given how long each part takes alone and who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleet.durations import Seconds, StepDurations
from fleet.schedule import Slot, in_dependency_order, one_f_one_b
from fleet.topology import Topology


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Moments of one step in seconds since the job's start. Passes are indexed by direction * n_micro + micro.

    begin, loader_end, gradient_issue, end: (pp, dp, tp); receive_issue, compute_begin, compute_end:
    (pp, 2 n_micro, dp, tp); tensor_end: (pp, 2 n_micro, dp); gradient_end: (pp, tp). A receive ends where its compute
    begins; the tensor all-reduce is issued where its compute ends; the optimizer runs from gradient_end to end.
    """

    begin: Seconds
    loader_end: Seconds
    receive_issue: Seconds
    compute_begin: Seconds
    compute_end: Seconds
    tensor_end: Seconds
    gradient_issue: Seconds
    gradient_end: Seconds
    end: Seconds


class Timeline:
    """Plays steps one after another: one's end is the next one's beginning, rank by rank.

    Sends are buffered and never wait: only receives, tensor all-reduces and the gradient all-reduce make a rank wait.
    A step costs O(stages x micro-batches) numpy operations on (dp, tp) arrays.
    """

    def __init__(self, topology: Topology, n_micro: int) -> None:
        self._topology = topology
        self._n_micro = n_micro
        self.programs = one_f_one_b(topology.pp, n_micro)
        self._order = in_dependency_order(self.programs)
        self._ready = np.zeros(topology.shape)

    def play(self, durations: StepDurations) -> StepTimes:
        """Return the moments of the next step, and remember where each rank stands at its end."""
        pp, dp, tp = self._topology.shape
        passes = (pp, 2 * self._n_micro, dp, tp)
        begin = self._ready
        cursor = begin + durations.loader
        times = StepTimes(
            begin=begin,
            loader_end=cursor.copy(),
            receive_issue=np.empty(passes),
            compute_begin=np.empty(passes),
            compute_end=np.empty(passes),
            tensor_end=np.empty(passes[:3]),
            gradient_issue=cursor,
            gradient_end=np.empty((pp, tp)),
            end=np.empty((pp, dp, tp)),
        )
        for slot in self._order:
            self._play_slot(slot, durations, times, cursor)
        times.gradient_end[:] = cursor.max(axis=1) + durations.gradient_reduce
        times.end[:] = times.gradient_end[:, None, :] + durations.optimizer
        self._ready = times.end
        return times

    def _play_slot(self, slot: Slot, durations: StepDurations, times: StepTimes, cursor: Seconds) -> None:
        stage, index = slot.stage, slot.direction * self._n_micro + slot.micro
        here = cursor[stage]
        times.receive_issue[stage, index] = here
        source = slot.source(self._topology.pp)
        if source is not None:
            arrival = times.tensor_end[source.stage, index][:, None] + durations.handover[stage, index]
            here = np.maximum(here, arrival)
        times.compute_begin[stage, index] = here
        finished = here + durations.compute[stage, index]
        times.compute_end[stage, index] = finished
        together = finished.max(axis=1) + durations.tensor_reduce[stage, index]
        times.tensor_end[stage, index] = together
        cursor[stage] = together[:, None]
