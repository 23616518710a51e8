from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightwatch import _layout as layout
from flightwatch._ops import Op
from flightwatch._ring import RingWriter
from tests.agent.ring_reader import read_ring

SMALL = 8  # records of a ring in tests that go round it


@pytest.fixture
def ring(tmp_path: Path) -> RingWriter:
    return RingWriter(str(tmp_path), {"run": "r", "rank": 3}, epoch=0xABC)


def test_a_new_ring_is_private_whole_and_says_who_it_is(ring: RingWriter) -> None:
    stat = os.stat(ring.path)

    found = read_ring(ring.path)

    assert ring.path.endswith("rings/0000000000000abc.ring")
    assert stat.st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(ring.path)).st_mode & 0o777 == 0o700
    assert stat.st_blocks * 512 >= layout.RING_BYTES
    assert (found.state, found.epoch, found.pid) == (layout.STATE_RUNNING, 0xABC, os.getpid())
    assert found.identity == {"run": "r", "rank": 3}
    assert os.listdir(os.path.dirname(ring.path)) == ["0000000000000abc.ring"]


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 2**24 - 1),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**63 - 1),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**24 - 1),
        ),
        max_size=20,
    )
)
def test_every_record_is_read_as_it_was_written(
    rows: list[tuple[int, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ring = RingWriter(str(tmp_path_factory.mktemp("ring")), {}, epoch=1)

    for row in rows:
        ring.write(*row)

    found = read_ring(ring.path)
    read = [(r["op"], r["step"], r["start_ns"], r["value"], r["seq"], r["aux"]) for r in found.records]
    assert read == rows
    assert found.torn == 0
    ring.close()


def test_the_second_lap_writes_over_the_first_and_is_told_from_it(ring: RingWriter) -> None:
    for number in range(layout.CAPACITY + SMALL):
        ring.write(1, number, 0, 0)

    numbers = [record["number"] for record in read_ring(ring.path).records]

    assert numbers == list(range(SMALL, layout.CAPACITY + SMALL))


def test_a_torn_slot_is_seen_by_its_two_laps(ring: RingWriter) -> None:
    ring.write(1, 2, 3, 4)
    with open(ring.path, "r+b") as file:
        file.seek(layout.RECORDS_OFFSET + layout.RECORD_BYTES - 1)
        file.write(b"\x07")

    found = read_ring(ring.path)

    assert (found.torn, found.records) == (1, [])


def test_the_name_table_gives_ops_in_order_and_ends_when_full(ring: RingWriter) -> None:
    descriptors = [Op("forward", f"{'x' * 9000}{i}") for i in range(200)]

    taken = [ring.append_name(i + 1, descriptor) for i, descriptor in enumerate(descriptors)]

    found = read_ring(ring.path).ops
    assert taken == [True] * len(found) + [False] * (200 - len(found))
    assert 100 < len(found) < 200
    assert [found[i + 1]["name"] for i in range(len(found))] == [d.name for d in descriptors[: len(found)]]


def test_no_more_ops_than_the_layout_allows(ring: RingWriter) -> None:
    assert not ring.append_name(layout.MAX_OPS, Op("forward", "x"))


def test_the_lock_is_held_for_life_and_lapses_at_the_end(ring: RingWriter) -> None:
    code = "import fcntl,sys; fcntl.lockf(open(sys.argv[1],'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    probe = [sys.executable, "-c", code, ring.path]

    held = subprocess.run(probe, capture_output=True, check=False).returncode
    ring.close()
    free = subprocess.run(probe, capture_output=True, check=False).returncode

    assert (held, free) == (1, 0)


def test_a_clean_close_tells_the_count_and_later_writes_go_nowhere(ring: RingWriter) -> None:
    for _ in range(5):
        ring.write(1, 2, 3, 4)

    ring.close()
    ring.write(1, 2, 3, 4)
    ring.close()

    found = read_ring(ring.path)
    assert (found.state, found.records_written, len(found.records)) == (layout.STATE_CLOSED, 5, 5)


def test_an_identity_may_be_rewritten_longer_or_shorter(ring: RingWriter) -> None:
    for identity in ({"run": "a" * 500}, {"run": "b"}):
        ring.rewrite_identity(identity)

        assert read_ring(ring.path).identity == identity
    with pytest.raises(ValueError, match="does not fit"):
        ring.rewrite_identity({"run": "c" * 5000})


def test_a_forked_child_leaves_the_parents_ring_alone(ring: RingWriter) -> None:
    ring.write(1, 0, 0, 0)
    pid = os.fork()
    if pid == 0:
        for _ in range(100):
            ring.write(2, 0, 0, 0)
        ring.close()
        os._exit(0 if ring.names_lock.acquire(timeout=1) else 1)
    _, status = os.waitpid(pid, 0)
    ring.write(1, 1, 0, 0)

    found = read_ring(ring.path)
    assert status == 0
    assert found.state == layout.STATE_RUNNING
    assert [record["op"] for record in found.records] == [1, 1]


def test_a_lock_held_at_the_fork_does_not_hang_the_child(ring: RingWriter) -> None:
    with ring.names_lock:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if ring.names_lock.acquire(timeout=1) else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_threads_share_the_ring_without_losing_a_record(ring: RingWriter) -> None:
    def write(op: int) -> None:
        for step in range(2000):
            ring.write(op, step, 0, 0)

    threads = [threading.Thread(target=write, args=(op,)) for op in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = read_ring(ring.path)
    assert [record["number"] for record in found.records] == list(range(16_000))
    for op in range(1, 9):
        assert [record["step"] for record in found.records if record["op"] == op] == list(range(2000))


def test_a_full_disk_is_an_error_at_creation_and_leaves_no_file(tmp_path: Path) -> None:
    code = f"""
        import os, resource
        from flightwatch._ring import RingWriter
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            RingWriter({str(tmp_path)!r}, {{}}, epoch=1)
        except OSError as error:
            print(error.errno, os.listdir({str(tmp_path / "rings")!r}))
    """

    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)

    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1 << 20
    assert done.stdout == f"{errno.EFBIG} []\n"


def test_cells_are_given_out_once_each_and_taken_back(ring: RingWriter) -> None:
    claimed = [ring.claim_cell() for _ in range(layout.CELL_COUNT + 1)]

    assert claimed[-1] == -1
    assert len(set(claimed)) == layout.CELL_COUNT + 1
    ring.release_cell(claimed[5])
    assert ring.claim_cell() == claimed[5]


def test_the_control_block_is_read_as_the_forwarder_wrote_it(ring: RingWriter) -> None:
    with open(ring.path, "r+b") as file:
        file.seek(layout.CONTROL_OFFSET)
        file.write(layout.CONTROL.pack(77, 1, 10))

    assert ring.read_control() == (77, 1, 10)
