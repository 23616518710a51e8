from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightwatch.forward.ring_file import RingFile
from flightwatch.forward.tail import HOLD_SECONDS, OVERRUN, TORN, LostRecords, Tail
from ring_oracle import CAPACITY, OracleRing, values_in

PLENTY = 10**6


@pytest.fixture
def ring(tmp_path: Path) -> OracleRing:
    return OracleRing(tmp_path / "a.ring")


def read_values(tail: Tail, now: float = 0.0, *, final: bool = False, max_records: int = PLENTY) -> list[int]:
    """Return the values read, after checking that pieces are consecutive within themselves."""
    values: list[int] = []
    for piece in tail.read(now, max_records=max_records, final=final):
        here = values_in(piece.records)
        assert here == list(range(piece.first, piece.end))
        values += here
    return values


def test_empty_ring_gives_nothing(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 0)

    assert read_values(tail) == []
    assert tail.position == 0


def test_each_record_is_read_once(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 0)
    ring.put_many(0, 1000)
    first = read_values(tail)
    ring.put_many(1000, 1500)

    second = read_values(tail)

    assert first == list(range(1000))
    assert second == list(range(1000, 1500))
    assert tail.lost == []


def test_at_most_max_records_are_read(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 0)
    ring.put_many(0, 1000)

    assert read_values(tail, max_records=300) == list(range(300))
    assert read_values(tail) == list(range(300, 1000))


def test_reading_goes_on_over_the_end_of_the_ring(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), CAPACITY - 100)
    ring.put_many(CAPACITY - 100, CAPACITY + 200)

    assert read_values(tail) == list(range(CAPACITY - 100, CAPACITY + 200))


def test_laps_wrap_after_255(ring: OracleRing) -> None:
    begin = 255 * CAPACITY - 50  # lap 255, then 0, whose mark is that of an unwritten slot
    tail = Tail(RingFile(str(ring.path)), begin)
    ring.put_many(begin - CAPACITY + 50, begin)
    ring.put_many(begin, begin + 150)

    assert read_values(tail) == list(range(begin, begin + 150))


def test_torn_record_is_waited_for(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 0)
    ring.put_many(0, 10)
    ring.put(4, last_lap=0)
    assert read_values(tail, 0.0) == [0, 1, 2, 3]

    ring.put(4)

    assert read_values(tail, HOLD_SECONDS - 0.1) == [4, 5, 6, 7, 8, 9]
    assert tail.lost == []


def test_torn_record_is_skipped_after_a_while_and_counted(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 0)
    ring.put_many(0, 10)
    ring.put(4, last_lap=0)
    assert read_values(tail, 7.0) == [0, 1, 2, 3]
    assert read_values(tail, 7.0 + HOLD_SECONDS - 0.1) == []

    assert read_values(tail, 7.0 + HOLD_SECONDS) == [5, 6, 7, 8, 9]
    assert tail.lost == [LostRecords(TORN, 4, 4)]


def test_unwritten_slot_before_written_ones_is_a_hole(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 0)
    ring.put_many(0, 3)
    ring.put_many(7, 9)

    assert read_values(tail, 0.0) == [0, 1, 2]
    assert read_values(tail, HOLD_SECONDS) == [7, 8]
    assert tail.lost == [LostRecords(TORN, 3, 6)]


def test_torn_last_record_is_not_lost_while_its_writer_lives(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 0)
    ring.put_many(0, 3)
    ring.put(3, last_lap=0)

    assert read_values(tail, 0.0) == [0, 1, 2]
    assert read_values(tail, 100.0) == []
    assert tail.lost == []


def test_holes_of_a_dead_writer_are_passed_at_once(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 0)
    ring.put_many(0, 3)
    ring.put_many(5, 6)
    ring.put_many(2000, 2003)

    assert read_values(tail, 0.0, final=True) == [0, 1, 2, 5, 2000, 2001, 2002]
    assert tail.lost == [LostRecords(TORN, 3, 4), LostRecords(TORN, 6, 1999)]


def test_overrun_goes_on_with_the_oldest_and_counts_what_is_gone(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 0)
    ring.put_many(0, 100)
    read_values(tail)
    ring.put_many(100, 2 * CAPACITY + 500)

    values = read_values(tail)

    (lost,) = tail.lost
    assert lost.reason == OVERRUN
    assert lost.first == 100
    assert values == list(range(lost.last + 1, 2 * CAPACITY + 500))
    assert len(values) > 0.9 * CAPACITY


def test_overrun_of_several_laps_is_one_gap(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 10)
    ring.put_many(5 * CAPACITY + 7, 6 * CAPACITY + 7)

    values = read_values(tail)

    assert [lost.reason for lost in tail.lost] == [OVERRUN]
    assert values[-1] == 6 * CAPACITY + 6
    assert tail.lost[0].last + 1 == values[0]


def test_overrun_with_a_torn_first_slot_still_comes_to_an_end(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 10)
    ring.put_many(2 * CAPACITY, 3 * CAPACITY)
    ring.put(CAPACITY, value=1)  # a stale lap in slot 0

    values = read_values(tail, 0.0, final=True)

    assert values[-1] == 3 * CAPACITY - 1
    assert tail.position == 3 * CAPACITY


def test_is_written_tells_half_full(ring: OracleRing) -> None:
    tail = Tail(RingFile(str(ring.path)), 0)
    ring.put_many(0, 100)

    assert tail.is_written(99)
    assert not tail.is_written(100)
    assert not tail.is_written(99 + CAPACITY)


@settings(max_examples=40, deadline=None)
@given(
    writes=st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["good", "skip", "torn"])), max_size=30),
    begin=st.sampled_from([0, CAPACITY - 40, 5 * CAPACITY - 3]),
)
def test_read_and_lost_together_are_all_that_was_written(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, str]], begin: int
) -> None:
    ring = OracleRing(tmp_path_factory.mktemp("rings") / "a.ring")
    number, good = begin, []
    for count, how in writes:
        if how == "good":
            ring.put_many(number, number + count)
            good += list(range(number, number + count))
        elif how == "torn" and count:
            ring.put(number, last_lap=(number // CAPACITY + 77) % 256)
            count = 1
        number += count
    tail = Tail(RingFile(str(ring.path)), begin)

    values = read_values(tail, final=True)

    lost = [record for gap in tail.lost for record in range(gap.first, gap.last + 1)]
    assert values == good
    assert sorted(values + lost) == list(range(begin, tail.position))
