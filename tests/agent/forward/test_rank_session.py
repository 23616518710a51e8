from __future__ import annotations

from flightwatch._ops import FORWARD, Op
from flightwatch.forward.rank_session import describe_op
from flightwatch.wire.limits import MAX_TEXT


def test_texts_that_no_collector_takes_are_cut_and_the_key_is_of_the_whole() -> None:
    first, second = (Op(FORWARD, "x" * MAX_TEXT + tail, module="m" * 2 * MAX_TEXT) for tail in "ab")

    told = [describe_op(1, 1, first), describe_op(1, 2, second)]

    assert [len(op.name) for op in told] == [len(op.module) for op in told] == [MAX_TEXT, MAX_TEXT]
    assert told[0].op_key != told[1].op_key
