from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from flightwatch.forward.spool import Spool, drop, lost_frame, read_frames
from flightwatch.wire import flightwatch_pb2 as wire


def a_frame(first: int, count: int = 10, epoch: int = 1) -> wire.Frame:
    return wire.Frame(slices=[wire.Slice(epoch=epoch, first_record=first, records=bytes(32 * count))])


@contextlib.contextmanager
def file_size_limit(n_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond `n_bytes`: what a disk that fills up does to a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def greeting() -> list[wire.Frame]:
    return [wire.Frame(starts=[wire.RankStart(epoch=1, run="r")], ops=[wire.OpDescriptor(epoch=1, op=1)])]


def test_what_was_written_is_read_back_behind_the_greeting(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), greeting)
    spool.write(a_frame(0))
    spool.write(a_frame(10))
    spool.close_file()

    (path,) = spool.files()

    assert list(read_frames(path)) == [*greeting(), a_frame(0), a_frame(10)]


def test_file_being_written_is_not_offered(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), greeting)
    assert spool.is_empty()

    spool.write(a_frame(0))

    assert spool.files() == []
    assert not spool.is_empty()


def test_full_file_is_ended_and_files_come_oldest_first(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), greeting, file_bytes=1000)
    for first in range(0, 100, 10):
        spool.write(a_frame(first))
    spool.close_file()

    firsts = [p.first_record for path in spool.files() for frame in read_frames(path) for p in frame.slices]

    assert firsts == list(range(0, 100, 10))
    assert len(spool.files()) > 1
    assert all(next(iter(read_frames(path))).starts for path in spool.files())


def test_torn_end_of_a_file_costs_only_the_torn_frame(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), list)
    spool.write(a_frame(0))
    spool.write(a_frame(10))
    spool.close_file()
    path = Path(spool.files()[0])

    path.write_bytes(path.read_bytes()[:-7])

    assert list(read_frames(str(path))) == [a_frame(0)]


def test_flipped_bit_is_noticed(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), list)
    spool.write(a_frame(0))
    spool.close_file()
    path = Path(spool.files()[0])
    body = bytearray(path.read_bytes())
    body[-1] ^= 1

    path.write_bytes(body)

    assert list(read_frames(str(path))) == []


def test_overflow_names_the_oldest_file_but_never_the_one_being_shipped(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), greeting, limit_bytes=2000, file_bytes=500)
    for first in range(0, 60, 10):
        spool.write(a_frame(first))
    oldest, second = spool.files()[:2]

    assert spool.find_overflow() == oldest
    assert spool.find_overflow(keep=oldest) == second
    for path in spool.files():
        drop(path)
    assert spool.find_overflow() is None


def test_dropped_file_becomes_one_gap_per_process(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), greeting)
    spool.write(a_frame(100))
    spool.write(a_frame(130))
    spool.close_file()

    lost = lost_frame(spool.files()[0], "spool_full")

    assert [(gap.first_record, gap.last_record, gap.count) for gap in lost.gaps] == [(100, 139, 20)]
    assert [start.run for start in lost.starts] == ["r"]


def test_ends_and_gaps_of_a_dropped_file_are_kept(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), greeting)
    spool.write(wire.Frame(gaps=[wire.Gap(epoch=1, reason="torn", first_record=3, last_record=3, count=1)]))
    spool.write(a_frame(100))
    spool.write(wire.Frame(ends=[wire.RankEnd(epoch=1, how="clean", records_written=110)]))
    spool.close_file()

    lost = lost_frame(spool.files()[0], "spool_full")

    assert [(gap.reason, gap.count) for gap in lost.gaps] == [("torn", 1), ("spool_full", 10)]
    assert [end.records_written for end in lost.ends] == [110]


@pytest.mark.parametrize("room_bytes", [3, 20])  # in mid of the magic, and of the greeting
def test_file_whose_beginning_did_not_fit_is_not_continued(tmp_path: Path, room_bytes: int) -> None:
    spool = Spool(str(tmp_path / "spool"), greeting)
    with file_size_limit(room_bytes), pytest.raises(OSError, match=r"full|large"):
        spool.write(a_frame(0))
    assert spool.is_empty()
    assert list((tmp_path / "spool").iterdir()) == []

    spool.write(a_frame(10))
    spool.close_file()

    (path,) = spool.files()
    assert list(read_frames(path)) == [*greeting(), a_frame(10)]


def test_missing_directory_means_an_empty_spool(tmp_path: Path) -> None:
    assert Spool(str(tmp_path / "none"), list).is_empty()
