"""The order in which pipeline stages work through their micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

FORWARD = 0
BACKWARD = 1


@dataclass(frozen=True, slots=True)
class Slot:
    """One pass of one micro-batch through one stage; `direction` is FORWARD or BACKWARD."""

    stage: int
    direction: int
    micro: int

    def source(self, n_stages: int) -> Slot | None:
        """Return the pass on another stage whose output this one needs, None at the ends of the pipeline."""
        stage = self.stage - 1 if self.direction == FORWARD else self.stage + 1
        return Slot(stage, self.direction, self.micro) if 0 <= stage < n_stages else None


def one_f_one_b(n_stages: int, n_micro: int) -> list[list[Slot]]:
    """Return each stage's passes in the order in which it does them (1F1B without interleaving).

    Source: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training" (ICML 2021), PipeDream-Flush: a stage
    does (n_stages - stage - 1) forward passes to warm up, then alternates, then drains.
    """
    programs = []
    for stage in range(n_stages):
        warm_up = min(n_stages - stage - 1, n_micro)
        slots = [Slot(stage, FORWARD, micro) for micro in range(warm_up)]
        for micro in range(n_micro - warm_up):
            slots.append(Slot(stage, FORWARD, warm_up + micro))
            slots.append(Slot(stage, BACKWARD, micro))
        slots += [Slot(stage, BACKWARD, micro) for micro in range(n_micro - warm_up, n_micro)]
        programs.append(slots)
    return programs


def in_dependency_order(programs: list[list[Slot]]) -> list[Slot]:
    """Return all passes so that each comes after the one before it on its stage and after its source.

    Raises:
        ValueError: the programs wait for one another for ever.
    """
    n_stages = len(programs)
    next_slot = [0] * n_stages
    done: set[Slot] = set()
    order: list[Slot] = []
    while len(order) < sum(map(len, programs)):
        before = len(order)
        for stage, program in enumerate(programs):
            while next_slot[stage] < len(program):
                slot = program[next_slot[stage]]
                source = slot.source(n_stages)
                if source is not None and source not in done:
                    break
                done.add(slot)
                order.append(slot)
                next_slot[stage] += 1
        if len(order) == before:
            raise ValueError(f"the pipeline programs deadlock after {before} passes")
    return order
