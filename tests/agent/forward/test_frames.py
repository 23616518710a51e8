from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightwatch.forward.frames import MAX_FRAME_BYTES, FrameBuilder, greeting_frames
from flightwatch.wire import flightwatch_pb2 as wire


def test_large_slice_is_cut_into_frames_below_the_limit() -> None:
    records = bytes(range(32)) * 100_000

    builder = FrameBuilder()
    builder.add_slice(7, 1000, records)
    frames = builder.take()

    assert all(frame.ByteSize() <= MAX_FRAME_BYTES for frame in frames)
    assert b"".join(piece.records for frame in frames for piece in frame.slices) == records
    assert len(frames) == 4


def test_cut_slices_go_on_where_the_last_one_ended() -> None:
    builder = FrameBuilder(1000)
    builder.add_slice(7, 1000, bytes(32 * 300))
    frames = builder.take()

    expected = 1000
    for piece in (piece for frame in frames for piece in frame.slices):
        assert piece.first_record == expected
        expected += len(piece.records) // 32
    assert expected == 1300


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("osce"), st.integers(0, 40)), max_size=40), st.integers(300, 3000))
def test_everything_added_comes_out_once_and_in_order(parts: list[tuple[str, int]], limit: int) -> None:
    builder = FrameBuilder(limit)
    for index, (kind, size) in enumerate(parts):
        if kind == "o":
            builder.add_op(wire.OpDescriptor(epoch=1, op=index, name="x" * size))
        elif kind == "s":
            builder.add_slice(index + 1, 0, bytes(32 * size))
        elif kind == "c":
            builder.add_cell(wire.OpenCell(epoch=1, thread=index))
        else:
            builder.add_end(wire.RankEnd(epoch=index + 1))

    frames = builder.take()

    assert [op.op for f in frames for op in f.ops] == [i for i, (kind, _) in enumerate(parts) if kind == "o"]
    assert [cell.thread for f in frames for cell in f.cells] == [i for i, (kind, _) in enumerate(parts) if kind == "c"]
    assert [end.epoch - 1 for f in frames for end in f.ends] == [i for i, (kind, _) in enumerate(parts) if kind == "e"]
    for index, (kind, size) in enumerate(parts):
        if kind == "s":
            got = b"".join(p.records for f in frames for p in f.slices if p.epoch == index + 1)
            assert len(got) == 32 * size
    assert all(frame.ByteSize() <= limit + 64 for frame in frames)
    assert builder.take() == []


def test_descriptor_is_in_the_frame_of_its_slice_or_before() -> None:
    builder = FrameBuilder(2000)
    builder.add_slice(1, 0, bytes(32 * 55))
    builder.add_op(wire.OpDescriptor(epoch=1, op=9, name="n" * 200))
    builder.add_slice(1, 55, bytes(32))

    frames = builder.take()

    described = next(i for i, frame in enumerate(frames) if frame.ops)
    used = next(i for i, frame in enumerate(frames) for piece in frame.slices if piece.first_record == 55)
    assert described <= used


def test_greeting_of_ten_thousand_ranks_stays_below_the_limit() -> None:
    starts = [wire.RankStart(epoch=i + 1, run="run", node="node", rank=i, world_size=10_000) for i in range(10_000)]

    frames = greeting_frames(starts, [])

    assert sum(len(frame.starts) for frame in frames) == 10_000
    assert all(frame.ByteSize() < 1 << 20 for frame in frames)


def test_limit_without_room_for_one_record_is_refused() -> None:
    with pytest.raises(ValueError, match="not even one record"):
        FrameBuilder(40)
