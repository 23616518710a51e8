from __future__ import annotations

import pytest

from fleet.schedule import BACKWARD, FORWARD, Slot, in_dependency_order, one_f_one_b


@pytest.mark.parametrize(("n_stages", "n_micro"), [(1, 1), (4, 4), (4, 2), (3, 8)])
def test_every_stage_does_each_micro_batch_forward_then_backward_once(n_stages: int, n_micro: int) -> None:
    for program in one_f_one_b(n_stages, n_micro):
        assert len(program) == len(set(program)) == 2 * n_micro
        for micro in range(n_micro):
            stage = program[0].stage
            assert program.index(Slot(stage, FORWARD, micro)) < program.index(Slot(stage, BACKWARD, micro))


def test_a_stage_holds_at_most_as_many_micro_batches_as_stages_follow_it() -> None:
    for stage, program in enumerate(one_f_one_b(4, 16)):
        held = peak = 0
        for slot in program:
            held += 1 if slot.direction == FORWARD else -1
            peak = max(peak, held)
        assert peak == 4 - stage


def test_dependency_order_puts_every_source_first() -> None:
    order = in_dependency_order(one_f_one_b(4, 6))

    place = {slot: index for index, slot in enumerate(order)}
    for slot in order:
        source = slot.source(4)
        assert source is None or place[source] < place[slot]


def test_programs_that_wait_for_each_other_are_refused() -> None:
    first = [Slot(0, BACKWARD, 0), Slot(0, FORWARD, 0)]
    last = [Slot(1, FORWARD, 0), Slot(1, BACKWARD, 0)]

    with pytest.raises(ValueError, match="deadlock after 0 passes"):
        in_dependency_order([first, last])
