from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.decode import DAY_NS, check_hello, decode
from collector.epochs import OTHER_KEY, EpochBook
from collector.errors import MalformedBatchError
from flightwatch._layout import CAPACITY, RECORD
from flightwatch._ops import FORWARD, SAMPLE, Op
from flightwatch.wire import flightwatch_pb2 as wire
from wire_examples import (
    EPOCH,
    START_MONOTONIC_NS,
    START_UNIX_NS,
    a_frame,
    a_start,
    an_op,
    packed_records,
)

NOW_NS = START_UNIX_NS + 10**9
OTHER_EPOCH = 0x1111


def decoded_ops(frame: wire.Frame, book: EpochBook | None = None) -> dict[str, list[object]]:
    columns = decode(frame, book or EpochBook(), now_ns=NOW_NS).tables["ops"]
    return {
        name: [column[1][code] for code in column[0]] if isinstance(column, tuple) else column.tolist()
        for name, column in columns.items()
    }


def naive_rows(frame: wire.Frame) -> list[tuple[int, ...]]:
    """Return (epoch, record, op id, step, start, value, seq, micro) of each record, one by one."""
    rows: list[tuple[int, ...]] = []
    for piece in frame.slices:
        for index, at in enumerate(range(0, len(piece.records), 32)):
            lap_op, step, start, value, seq, aux_lap = RECORD.unpack_from(piece.records, at)
            rows.append(
                (piece.epoch, piece.first_record + index, lap_op >> 8, step, start, value, seq, aux_lap & 0xFFFFFF)
            )
    return rows


def test_record_becomes_a_row_with_unix_time_and_op_key() -> None:
    columns = decoded_ops(a_frame(count=2, first=40))

    assert columns["run"] == ["run-1", "run-1"]
    assert columns["op"] == [Op(FORWARD, "layers.0").key] * 2
    assert columns["step"] == [4, 4]
    assert columns["rank"] == [0, 0]
    assert columns["epoch"] == [EPOCH, EPOCH]
    assert columns["record"] == [40, 41]
    assert columns["start_ns"] == [START_UNIX_NS + 40_000, START_UNIX_NS + 41_000]
    assert columns["value"] == [540, 541]
    assert columns["seq"] == [40 % 7, 41 % 7]
    assert columns["micro"] == [3, 3]


def test_columns_equal_the_naive_reading_over_many_slices() -> None:
    frame = wire.Frame(starts=[a_start(), a_start(OTHER_EPOCH, rank=1, run="run-2")])
    frame.ops.extend([an_op(op=1), an_op(op=5, name="b"), an_op(OTHER_EPOCH, op=5, name="c")])
    for epoch, first, count, op in (
        (EPOCH, 0, 7, 1),
        (OTHER_EPOCH, 2, 3, 5),
        (EPOCH, 7, 0, 1),
        (EPOCH, CAPACITY - 2, 5, 5),
        (OTHER_EPOCH, 9, 1, 0),
    ):
        frame.slices.add(epoch=epoch, first_record=first, records=packed_records(count, first=first, op=op))
    keys = {
        (EPOCH, 1): an_op().op_key,
        (EPOCH, 5): an_op(name="b").op_key,
        (OTHER_EPOCH, 5): an_op(name="c").op_key,
        (OTHER_EPOCH, 0): OTHER_KEY,
    }

    columns = decoded_ops(frame)

    rows = naive_rows(frame)
    offset = START_UNIX_NS - START_MONOTONIC_NS
    assert columns["epoch"] == [row[0] for row in rows]
    assert columns["record"] == [row[1] for row in rows]
    assert columns["op"] == [keys[row[0], row[2]] for row in rows]
    assert columns["start_ns"] == [row[4] + offset for row in rows]
    assert columns["run"] == ["run-1" if row[0] == EPOCH else "run-2" for row in rows]
    assert columns["rank"] == [0 if row[0] == EPOCH else 1 for row in rows]


def test_descriptors_stay_known_on_the_stream() -> None:
    book = EpochBook()
    decode(a_frame(), book, now_ns=NOW_NS)
    later = wire.Frame(slices=[wire.Slice(epoch=EPOCH, first_record=5, records=packed_records(2, first=5))])

    assert decoded_ops(later, book)["record"] == [5, 6]


def test_restated_start_keeps_descriptors_and_changes_the_rank() -> None:
    book = EpochBook()
    decode(a_frame(), book, now_ns=NOW_NS)
    later = wire.Frame(starts=[a_start(rank=2)])
    later.slices.add(epoch=EPOCH, first_record=5, records=packed_records(1, first=5))

    assert decoded_ops(later, book)["rank"] == [2]


def test_highest_step_is_told_by_run() -> None:
    frame = wire.Frame(starts=[a_start(), a_start(OTHER_EPOCH, rank=1, run="run-2")], ops=[an_op()])
    frame.slices.add(epoch=EPOCH, first_record=0, records=packed_records(35))
    frame.cells.add(epoch=OTHER_EPOCH, thread=1, step=9, seen_unix_ns=NOW_NS)

    assert decode(frame, EpochBook(), now_ns=NOW_NS).last_steps == {"run-1": 3, "run-2": 9}


def test_cell_between_ops_has_op_zero_and_an_open_one_its_key() -> None:
    frame = wire.Frame(starts=[a_start()], ops=[an_op()])
    frame.cells.add(epoch=EPOCH, thread=1, op=0, step=3, seen_unix_ns=NOW_NS)
    frame.cells.add(epoch=EPOCH, thread=2, op=1, step=3, start_monotonic_ns=START_MONOTONIC_NS + 9, seen_unix_ns=NOW_NS)

    cells = decode(frame, EpochBook(), now_ns=NOW_NS).tables["cells"]

    assert cells["op"].tolist() == [0, an_op().op_key]
    assert cells["start_ns"].tolist() == [0, START_UNIX_NS + 9]
    assert cells["thread"].tolist() == [1, 2]


def test_metric_columns_become_rows() -> None:
    frame = wire.Frame()
    frame.metrics.add(node="n0", name="cpu_busy_ratio", unix_ns=[NOW_NS, NOW_NS + 1], value=[0.5, float("nan")])
    frame.metrics.add(node="n1", device="cpu0", name="temperature_celsius", unix_ns=[NOW_NS], value=[61.0])

    metrics = decode(frame, EpochBook(), now_ns=NOW_NS).tables["metrics"]

    assert [metrics["node"][1][code] for code in metrics["node"][0]] == ["n0", "n0", "n1"]
    assert [metrics["device"][1][code] for code in metrics["device"][0]] == ["", "", "cpu0"]
    assert metrics["time_ns"].tolist() == [NOW_NS, NOW_NS + 1, NOW_NS]
    assert metrics["value"][0] == 0.5
    assert np.isnan(metrics["value"][1])


def test_gap_becomes_a_row_seen_now() -> None:
    frame = wire.Frame(starts=[a_start(rank=2)])
    frame.gaps.add(epoch=EPOCH, reason="torn", first_record=4, last_record=6, count=3)

    gaps = decode(frame, EpochBook(), now_ns=NOW_NS).tables["gaps"]

    assert gaps["count"].tolist() == [3]
    assert gaps["rank"].tolist() == [2]
    assert gaps["seen_ns"].tolist() == [NOW_NS]


def _broken_slice(**fields: Any) -> wire.Frame:
    frame = a_frame(count=0)
    del frame.slices[:]
    frame.slices.add(epoch=EPOCH, first_record=0, records=packed_records(3))
    frame.slices.add(**{"epoch": EPOCH, "first_record": 3, "records": packed_records(3, first=3), **fields})
    return frame


def _edited(records: bytes, at: int, byte: int) -> bytes:
    body = bytearray(records)
    body[at] = byte
    return bytes(body)


def _started(**fields: Any) -> wire.Frame:
    return wire.Frame(starts=[a_start(1, rank=0), a_start(**{"rank": 1, **fields})])


def _with(part: str, /, **fields: Any) -> wire.Frame:
    frame = a_frame()
    getattr(frame, part).add(**fields)
    return frame


def _late_records() -> bytes:
    return RECORD.pack(1 << 8 | 1, 0, START_MONOTONIC_NS + 4000 * DAY_NS, 0, 0, 1 << 24)


def _spread_records() -> bytes:
    return RECORD.pack(1 << 8 | 1, 0, START_MONOTONIC_NS + 40 * DAY_NS, 0, 0, 1 << 24)


MALFORMED: dict[str, Callable[[], wire.Frame]] = {
    "slices[1].epoch": lambda: _broken_slice(epoch=99),
    "slices[1].records: 95 bytes": lambda: _broken_slice(records=packed_records(3)[:95]),
    "slices[1].records: a record's two laps differ": lambda: _broken_slice(records=_edited(packed_records(3), 63, 9)),
    "slices[1].records: a record's op": lambda: _broken_slice(records=packed_records(3, op=2)),
    "slices[1].records: a record's start": lambda: _broken_slice(records=_late_records()),
    "slices: its times span": lambda: _broken_slice(records=_spread_records()),
    "slices[1].first_record": lambda: _broken_slice(first_record=1 << 63),
    "starts[1].epoch": lambda: _started(epoch=0),
    "starts[1].run": lambda: _started(run=""),
    "starts[1].node": lambda: _started(node="n" * 300),
    "starts[1].run: holds a NUL": lambda: _started(run="a\0b"),
    "starts[1].framework: holds a NUL": lambda: _started(framework="a\0b"),
    "starts[1].rank": lambda: _started(rank=4),
    "starts[1].world_size": lambda: _started(world_size=0),
    "starts[1].attempt": lambda: _started(attempt=1 << 31),
    "starts[1].start_unix_ns": lambda: _started(start_unix_ns=5),
    "starts[1].start_monotonic_ns": lambda: _started(start_monotonic_ns=-1),
    "ops[1].epoch": lambda: _with("ops", epoch=3, op=1, op_key=1, kind=FORWARD),
    "ops[1].op:": lambda: _with("ops", epoch=EPOCH, op=65_537, op_key=1, kind=FORWARD),
    "ops[1].op_key": lambda: _with("ops", epoch=EPOCH, op=2, kind=FORWARD),
    "ops[1].kind": lambda: _with("ops", epoch=EPOCH, op=2, op_key=1, kind="nonsense"),
    "ops[1].size_class": lambda: _with("ops", epoch=EPOCH, op=2, op_key=1, kind=SAMPLE, size_class=256),
    "ops[1].module": lambda: _with("ops", epoch=EPOCH, op=2, op_key=1, kind=SAMPLE, module="m" * 20_000),
    "cells[0].epoch": lambda: _with("cells", epoch=3),
    "cells[0].op": lambda: _with("cells", epoch=EPOCH, op=9, start_monotonic_ns=1, seen_unix_ns=NOW_NS),
    "cells[0].seen_unix_ns": lambda: _with("cells", epoch=EPOCH),
    "cells[0].start_monotonic_ns": lambda: _with("cells", epoch=EPOCH, start_monotonic_ns=-5, seen_unix_ns=NOW_NS),
    "metrics[0].value": lambda: _with("metrics", node="n", name="m", unix_ns=[NOW_NS], value=[1.0, 2.0]),
    "metrics[0].unix_ns": lambda: _with("metrics", node="n", name="m", unix_ns=[-1], value=[1.0]),
    "metrics[0].node": lambda: _with("metrics", name="m"),
    "metrics[0].name": lambda: _with("metrics", node="n"),
    "gaps[0].epoch": lambda: _with("gaps", epoch=3, reason="torn"),
    "gaps[0].reason": lambda: _with("gaps", epoch=EPOCH),
    "gaps[0].last_record": lambda: _with("gaps", epoch=EPOCH, reason="torn", first_record=5, last_record=4),
    "gaps[0].count": lambda: _with("gaps", epoch=EPOCH, reason="torn", first_record=5, last_record=6, count=3),
    "ends[0].epoch": lambda: _with("ends", epoch=3, how="clean"),
    "ends[0].how": lambda: _with("ends", epoch=EPOCH, how="bored", unix_ns=NOW_NS),
    "ends[0].unix_ns": lambda: _with("ends", epoch=EPOCH, how="clean"),
    "ends[0].records_written": lambda: _with("ends", epoch=EPOCH, how="clean", unix_ns=NOW_NS, records_written=1 << 63),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_frame_is_refused_by_the_name_of_its_field(what: str) -> None:
    with pytest.raises(MalformedBatchError) as refusal:
        decode(MALFORMED[what](), EpochBook(), now_ns=NOW_NS)

    assert str(refusal.value).startswith(what)
    assert refusal.value.field == what.partition(":")[0]


def test_hello_of_another_protocol_is_refused() -> None:
    with pytest.raises(MalformedBatchError, match=r"hello\.protocol"):
        check_hello(wire.Hello(protocol=2, node="n"))


def test_hello_without_a_node_is_refused() -> None:
    with pytest.raises(MalformedBatchError, match=r"hello\.node"):
        check_hello(wire.Hello(protocol=1))


def test_empty_frame_has_no_rows() -> None:
    decoded = decode(wire.Frame(frame=8), EpochBook(), now_ns=NOW_NS)

    assert (decoded.number, decoded.n_rows, decoded.tables) == (8, 0, {})


@settings(max_examples=300, deadline=None)
@given(edits=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=8))
def test_bytes_changed_at_random_are_decoded_or_refused_but_never_crash(edits: list[tuple[int, int]]) -> None:
    frame = a_frame(count=8)
    frame.cells.add(epoch=EPOCH, thread=1, op=1, start_monotonic_ns=5, seen_unix_ns=NOW_NS)
    frame.metrics.add(node="n", name="m", unix_ns=[NOW_NS], value=[1.0])
    frame.gaps.add(epoch=EPOCH, reason="torn", first_record=1, last_record=2, count=2)
    frame.ends.add(epoch=EPOCH, how="clean", records_written=8, unix_ns=NOW_NS)
    body = bytearray(frame.SerializeToString())
    for at, byte in edits:
        body[at % len(body)] = byte
    try:
        changed = wire.Frame.FromString(bytes(body))
    except Exception:  # the wire's own reader refuses it: the service's tests have that
        return

    try:
        decoded = decode(changed, EpochBook(), now_ns=NOW_NS)
    except MalformedBatchError:
        return

    for columns in decoded.tables.values():
        lengths = {len(column[0]) if isinstance(column, tuple) else len(column) for column in columns.values()}
        assert len(lengths) == 1
