from __future__ import annotations

import struct

import numpy as np
import pytest

from fleet.durations import DurationModel
from fleet.record_packer import RecordPacker, Samples
from fleet.stage_program import FORWARD_OP, GRAD_NORM, LOSS, STEP, TENSOR, TENSOR_ISSUE, StageProgram, ops_of
from fleet.timeline import StepTimes, Timeline
from fleet.topology import Topology
from flightwatch import _ops
from flightwatch._layout import CAPACITY, RECORD, RECORD_BYTES, lap_of

TOPOLOGY = Topology(dp=2, pp=3, tp=2, ranks_per_node=2)
N_MICRO = 4
ORIGIN_NS = 10**15
SAMPLES = Samples(loss=2.5, grad_norm=0.75)


def packer_and_times(stage: int = 1) -> tuple[StageProgram, RecordPacker, StepTimes]:
    timeline = Timeline(TOPOLOGY, N_MICRO)
    times = timeline.play(DurationModel(TOPOLOGY, N_MICRO, 1.0, seed=2).draw())
    program = StageProgram(stage, timeline.programs[stage], TOPOLOGY, N_MICRO)
    return program, RecordPacker(program, ORIGIN_NS), times


def test_records_decode_by_the_rings_own_struct() -> None:
    program, packer, times = packer_and_times()

    records = packer.pack(7, times, SAMPLES)

    assert records.itemsize == RECORD_BYTES
    row = program.row_of(STEP)
    lap_op, step, start_ns, value, _seq, aux_lap = RECORD.unpack(records[3, row].tobytes())
    assert (lap_op >> 8, step, lap_op & 0xFF, aux_lap >> 24) == (STEP, 7, 1, 1)
    assert start_ns == ORIGIN_NS + round(times.begin[1, 1, 1] * 1e9)
    assert start_ns + value == ORIGIN_NS + round(times.end[1, 1, 1] * 1e9)


def test_laps_count_up_where_a_ring_would_begin_again_and_wrap_after_255() -> None:
    program, packer, times = packer_and_times()
    for first in (CAPACITY - 5, 255 * CAPACITY - 5):
        packer.records_written = first

        laps = packer.pack(7, times, SAMPLES)["lap_op"][0] & 0xFF

        assert [lap_of(first + i) for i in range(len(program))] == laps.tolist()


def test_both_laps_of_a_record_are_equal() -> None:
    _, packer, times = packer_and_times()
    packer.records_written = 200 * CAPACITY - 5

    records = packer.pack(7, times, SAMPLES)

    np.testing.assert_array_equal(records["lap_op"] & 0xFF, records["aux_lap"] >> 24)


def test_samples_are_the_bits_of_floats() -> None:
    program, packer, times = packer_and_times()

    value = packer.pack(7, times, SAMPLES)["value"]

    for op, expected in ((LOSS, 2.5), (GRAD_NORM, 0.75)):
        bits = int(value[2, program.row_of(op)])
        assert expected == struct.unpack("<d", struct.pack("<q", bits))[0]


def test_issue_and_end_of_a_collective_share_a_sequence_number_that_has_no_holes() -> None:
    _, packer, times = packer_and_times()
    steps = [packer.pack(step, times, SAMPLES)[0] for step in range(3)]

    seq = {
        op: np.concatenate([records["seq"][records["lap_op"] >> 8 == op] for records in steps])
        for op in (TENSOR_ISSUE, TENSOR)
    }

    np.testing.assert_array_equal(seq[TENSOR_ISSUE], seq[TENSOR])
    np.testing.assert_array_equal(seq[TENSOR], np.arange(3 * 2 * N_MICRO))


def test_records_stand_in_the_order_in_which_they_are_written() -> None:
    for stage in range(TOPOLOGY.pp):
        program, packer, times = packer_and_times(stage)
        records = packer.pack(0, times, SAMPLES)
        is_span = np.array([entry.fixed is None and entry.op not in (LOSS, GRAD_NORM) for entry in program.entries])

        written_ns = records["start_ns"] + np.where(is_span, records["value"], 0)

        assert (np.diff(written_ns, axis=1) >= 0).all()


def test_every_micro_batch_has_one_forward_per_rank() -> None:
    _, packer, times = packer_and_times()

    records = packer.pack(0, times, SAMPLES)[0]

    micro = (records["aux_lap"] & 0xFFFFFF)[records["lap_op"] >> 8 == FORWARD_OP]
    assert list(range(N_MICRO)) == sorted(micro.tolist())


@pytest.mark.parametrize(("stage", "expected"), [(0, 39), (1, 47), (2, 39)])
def test_a_rank_writes_about_as_many_records_as_a_real_one(stage: int, expected: int) -> None:
    program, _, _ = packer_and_times(stage)

    assert expected == len(program)


def test_ranks_of_one_group_name_its_collective_alike_and_other_groups_do_not() -> None:
    keys = [ops_of(TOPOLOGY, rank)[TENSOR].key for rank in range(4)]

    assert keys[0] == keys[1]
    assert keys[1] != keys[2]


def test_every_packed_op_has_a_descriptor_with_a_known_kind() -> None:
    program, _, _ = packer_and_times()
    ops = ops_of(TOPOLOGY, TOPOLOGY.rank(dp=0, pp=1, tp=0))

    assert set(program.op.tolist()) == set(ops)
    assert {op.kind for op in ops.values()} <= set(_ops.KINDS)
