from __future__ import annotations

import struct
from pathlib import Path

import pytest

from flightwatch._ops import Op
from flightwatch.forward.ring_file import Cell, DamagedRingError, RingFile
from ring_oracle import CAPACITY, START_MONOTONIC_NS, START_UNIX_NS, LockHolder, OracleRing


@pytest.fixture
def oracle(tmp_path: Path) -> OracleRing:
    return OracleRing(tmp_path / "a.ring", epoch=0xFEDC_BA98_7654_3210)


def test_header_is_read_as_written(oracle: OracleRing) -> None:
    ring = RingFile(str(oracle.path))

    assert ring.epoch == 0xFEDC_BA98_7654_3210
    assert ring.capacity == CAPACITY
    assert (ring.start_unix_ns, ring.start_monotonic_ns) == (START_UNIX_NS, START_MONOTONIC_NS)
    assert ring.pid == 4711


def test_identity_is_read_anew_and_none_while_it_is_rewritten(oracle: OracleRing) -> None:
    ring = RingFile(str(oracle.path))
    before = ring.read_identity()
    with oracle.path.open("r+b") as file:
        file.seek(64)
        file.write(struct.pack("<I", 0))
    during = ring.read_identity()
    oracle.identify(run="run-1", node="node-0", rank=3, world_size=4)

    after = ring.read_identity()

    assert before is not None
    assert before["rank"] == 0
    assert during is None
    assert after is not None
    assert after["rank"] == 3


def test_each_new_op_is_given_once(oracle: OracleRing) -> None:
    ring = RingFile(str(oracle.path))
    oracle.name("forward", "a")
    oracle.name("backward", "a")
    first = ring.read_new_ops()
    oracle.name("collective", "all_reduce", (0, 1, 2))

    second = ring.read_new_ops()

    assert first == [Op("forward", "a"), Op("backward", "a")]
    assert second == [Op("collective", "all_reduce", members=(0, 1, 2))]
    assert ring.read_new_ops() == []


def test_op_of_very_many_members_is_read_whole(oracle: OracleRing) -> None:
    ring = RingFile(str(oracle.path))
    members = tuple(range(100_000, 130_000))
    oracle.name("forward", "before")
    oracle.name("collective", "all_reduce", members)
    oracle.name("forward", "after")

    ops = ring.read_new_ops()

    assert [op.name for op in ops] == ["before", "all_reduce", "after"]
    assert ops[1].members == members


def test_cells_in_use_are_read_and_half_written_ones_left_out(oracle: OracleRing) -> None:
    ring = RingFile(str(oracle.path))
    oracle.cell(0, thread=11, op=2, step=7, start_ns=99)
    oracle.cell(3, thread=12, op=1, step=7, start_ns=98, version=5)
    oracle.cell(127, thread=13, op=0, step=6, start_ns=0)

    assert ring.read_cells() == [Cell(11, 2, 7, 99), Cell(13, 0, 6, 0)]


def test_goodbye_tells_how_many_were_written(oracle: OracleRing) -> None:
    ring = RingFile(str(oracle.path))
    assert ring.written_at_close() is None

    oracle.say_goodbye(1234)

    assert ring.written_at_close() == 1234


def test_acknowledged_position_stays_in_the_ring(oracle: OracleRing) -> None:
    RingFile(str(oracle.path)).write_acknowledged(5678)

    assert RingFile(str(oracle.path)).read_acknowledged() == 5678
    assert oracle.acknowledged() == 5678


def test_sampling_does_not_touch_the_acknowledged_position(oracle: OracleRing) -> None:
    ring = RingFile(str(oracle.path))
    ring.write_acknowledged(5)

    ring.write_sampling(pause=True, every=10)

    assert struct.unpack("<QII", oracle.path.read_bytes()[0x2000:0x2010]) == (5, 1, 10)


def test_owner_is_there_while_it_holds_the_lock_and_gone_when_killed(oracle: OracleRing) -> None:
    owner = LockHolder(oracle.path)
    ring = RingFile(str(oracle.path))
    assert not ring.owner_is_gone()

    owner.die()

    assert ring.owner_is_gone()


def test_asking_for_the_owner_leaves_its_lock_alone(oracle: OracleRing) -> None:
    ring = RingFile(str(oracle.path))
    assert ring.owner_is_gone()

    owner = LockHolder(oracle.path)  # takes the lock without waiting

    assert not ring.owner_is_gone()
    owner.die()


@pytest.mark.parametrize(
    ("at", "what"),
    [(0, b"NOTARING"), (8, struct.pack("<I", 99)), (12, struct.pack("<I", 64)), (16, struct.pack("<I", 5))],
    ids=["magic", "version", "record bytes", "capacity"],
)
def test_file_of_another_kind_is_refused(oracle: OracleRing, at: int, what: bytes) -> None:
    with oracle.path.open("r+b") as file:
        file.seek(at)
        file.write(what)

    with pytest.raises(DamagedRingError):
        RingFile(str(oracle.path))


def test_short_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.ring").write_bytes(b"FWRING\x00\x01")

    with pytest.raises(DamagedRingError, match="cut short"):
        RingFile(str(tmp_path / "b.ring"))
