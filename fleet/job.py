"""A whole simulated job: plays step after step, paced by a clock, and streams what its ranks record."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleet.clock import Clock
from fleet.durations import DurationModel
from fleet.faults import Fault, FaultSchedule, slowdown_of
from fleet.hosts import Hosts
from fleet.rank_stream import RankStream, RunIdentity, Sender
from fleet.stage_program import PlayedStep
from fleet.timeline import Timeline
from fleet.topology import Topology
from fleet.training_curve import TrainingCurve

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0  # cells and host metrics, as a forwarder sends them
ROOM_POLL_SECONDS = 0.02
SAY_AFTER_SECONDS = 5.0  # how long to wait for room before saying so, and again
DEFAULT_MICRO_BATCHES = 4


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What to simulate. `step_seconds` is a healthy step's length, nearly."""

    topology: Topology
    run: str
    run_name: str = "demo"
    seed: int = 0
    step_seconds: float = 1.0
    n_micro: int = DEFAULT_MICRO_BATCHES


@dataclass(frozen=True, slots=True)
class ActiveStep:
    """A played step and the faults that acted in it."""

    played: PlayedStep
    faults: tuple[Fault, ...]


class Job:
    """One attempt of a job. `on_step(step, faults)` is told at the beginning of each step."""

    def __init__(
        self,
        plan: JobPlan,
        faults: FaultSchedule,
        *,
        clock: Clock,
        epochs: NDArray[np.uint64],
        on_step: Callable[[int, tuple[Fault, ...]], None] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._plan = plan
        self._faults = faults
        self._clock = clock
        self._on_step = on_step
        self._pause = pause
        self._origin_ns = clock.monotonic_ns()
        self._timeline = Timeline(plan.topology, plan.n_micro)
        self._durations = DurationModel(plan.topology, plan.n_micro, plan.step_seconds, plan.seed)
        self._hosts = Hosts(plan.topology, plan.seed)
        self._curve = TrainingCurve(plan.seed)
        identity = RunIdentity(plan.run, plan.run_name, clock.unix_ns(), self._origin_ns)
        self.stream = RankStream(plan.topology, self._timeline, identity, epochs)
        self._next_tick_seconds = TICK_SECONDS
        self._should_stop: Callable[[], bool] = lambda: False
        self.steps_done = 0
        self.seconds_without_room = 0.0

    def run(self, sender: Sender, *, steps: int | None, should_stop: Callable[[], bool]) -> None:
        """Play `steps` steps (None: for ever) or until `should_stop`, then end every rank."""
        self._should_stop = should_stop
        following = self._play(0)
        while (steps is None or self.steps_done < steps) and not should_stop():
            current, following = following, self._play(self.steps_done + 1)
            if self._on_step is not None:
                self._on_step(self.steps_done, current.faults)
            samples = self._curve.samples(self.steps_done)
            self._wait_until(float(current.played.times.end.max()), (current, following), sender)
            self.stream.add_step(self.steps_done, current.played.times, samples)
            self._flush(sender)
            self.steps_done += 1
        self.stream.add_ends(self._clock.unix_ns())
        self._flush(sender)

    def _play(self, step: int) -> ActiveStep:
        faults = tuple(self._faults.active(step))
        durations = self._durations.draw(slowdown_of(self._plan.topology, faults))
        return ActiveStep(PlayedStep(step, self._timeline.play(durations)), faults)

    def _elapsed(self) -> float:
        return (self._clock.monotonic_ns() - self._origin_ns) / 1e9

    def _wait_until(self, seconds: float, active: tuple[ActiveStep, ActiveStep], sender: Sender) -> None:
        while self._next_tick_seconds <= seconds:
            self._sleep_until(self._next_tick_seconds)
            self.stream.add_cells([each.played for each in active], self._next_tick_seconds, self._clock.unix_ns())
            self.stream.add_metrics(self._hosts.read(TICK_SECONDS, active[0].faults), self._clock.unix_ns())
            self._flush(sender)
            self._next_tick_seconds += TICK_SECONDS
        self._sleep_until(seconds)

    def _sleep_until(self, seconds: float) -> None:
        missing = seconds - self._elapsed()
        if missing > 0:
            self._clock.sleep(missing)

    def _flush(self, sender: Sender) -> None:
        """Submit what was added, once there is room. The job falls behind its clock rather than drop anything."""
        waited = 0.0
        while not sender.has_room() and not self._should_stop():
            self._pause(ROOM_POLL_SECONDS)
            before, waited = waited, waited + ROOM_POLL_SECONDS
            if before // SAY_AFTER_SECONDS != waited // SAY_AFTER_SECONDS:
                logger.warning("the collector does not keep up or does not answer: waiting since %.0f s", waited)
        self.seconds_without_room += waited
        self.stream.flush(sender, self._clock.unix_ns())
