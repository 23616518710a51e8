from __future__ import annotations

import pickle

from collector.batch import join
from collector.decode import DecodedFrame, decode
from collector.epochs import EpochBook
from flightwatch.wire import flightwatch_pb2 as wire
from wire_examples import EPOCH, START_UNIX_NS, a_frame, a_start, an_op, packed_records


def decoded(run: str, epoch: int, count: int) -> DecodedFrame:
    frame = wire.Frame(starts=[a_start(epoch, run=run)], ops=[an_op(epoch)])
    frame.slices.add(epoch=epoch, first_record=0, records=packed_records(count))
    return decode(frame, EpochBook(), now_ns=START_UNIX_NS)


def test_rows_of_several_streams_keep_their_runs() -> None:
    batch = join([decoded("a", 1, 2), decoded("b", 2, 1), decoded("a", 3, 1)], ["n"])

    codes, words = batch.tables["ops"]["run"]
    assert [words[code] for code in codes] == ["a", "a", "b", "a"]
    assert len(set(words)) == len(words)
    assert batch.tables["ops"]["epoch"].tolist() == [1, 1, 2, 3]


def test_starts_ends_names_and_steps_are_all_kept() -> None:
    first = a_frame(count=25)
    first.ends.add(epoch=EPOCH, how="clean", unix_ns=START_UNIX_NS)
    frames = [decode(first, EpochBook(), now_ns=START_UNIX_NS), decoded("b", 2, 11)]

    batch = join(frames, ["n0", "n1", "n0"])

    assert [start.epoch for start in batch.starts] == [EPOCH, 2]
    assert [end.epoch for end in batch.ends] == [EPOCH]
    assert set(batch.names) == {("run-1", an_op().op_key), ("b", an_op().op_key)}
    assert batch.last_steps == {"run-1": 2, "b": 1}
    assert batch.nodes == {"n0", "n1"}
    assert batch.n_rows == sum(frame.n_rows for frame in frames)


def test_joining_does_not_change_the_frames() -> None:
    frames = [decoded("a", 1, 2), decoded("b", 2, 1)]
    before = pickle.dumps([frame.tables for frame in frames])

    join(frames, [])

    assert pickle.dumps([frame.tables for frame in frames]) == before


def test_batch_of_nothing_has_no_tables() -> None:
    assert join([], []).tables == {}
