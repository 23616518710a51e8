from __future__ import annotations

import math
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flightwatch import _layout as layout
from flightwatch._recorder import MAX_OPEN_SPANS, Recorder
from flightwatch._ring import RingWriter
from tests.agent.ring_reader import Ring, read_ring


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    ring = RingWriter(str(tmp_path), {}, epoch=1)
    yield Recorder(ring)
    ring.close()


def read(recorder: Recorder) -> Ring:
    return read_ring(recorder.ring.path)


def my_cell(recorder: Recorder) -> dict[str, int]:
    (cell,) = [cell for cell in read(recorder).cells if cell["thread"] == threading.get_native_id()]
    return cell


def command(recorder: Recorder, *, pause: int = 0, every: int = 0) -> None:
    with open(recorder.ring.path, "r+b") as file:
        file.seek(layout.CONTROL_OFFSET)
        file.write(layout.CONTROL.pack(0, pause, every))


def test_an_op_has_one_id_and_a_descriptor_in_the_ring(recorder: Recorder) -> None:
    first = recorder.op(
        "collective", "allreduce", group="dp", members=(0, 2), dtype="float32", size_class=21, backend="gloo"
    )
    again = recorder.op(
        "collective", "allreduce", group="dp", members=(0, 2), dtype="float32", size_class=21, backend="gloo"
    )
    other = recorder.op(
        "collective", "allreduce", group="dp", members=(0, 2), dtype="float32", size_class=22, backend="gloo"
    )

    assert first == again != other
    assert read(recorder).ops[first] == {
        "kind": "collective",
        "name": "allreduce",
        "module": "",
        "group": "dp",
        "members": [0, 2],
        "dtype": "float32",
        "size_class": 21,
        "backend": "gloo",
    }


def test_names_without_end_become_op_0_and_are_not_remembered(recorder: Recorder) -> None:
    for i in range(200):
        recorder.op("forward", f"{'x' * 9000}{i}")

    assert recorder.op("forward", f"{'x' * 9000}199") == 0
    recorder.ring.write(recorder.op("forward", f"{'y' * 9000}"), 0, 0, 0)
    assert read(recorder).records[-1]["kind"] == "other"


def test_a_span_is_one_record_with_its_start_and_duration(recorder: Recorder) -> None:
    op = recorder.op("forward", "Block", module="h.0")
    recorder.step = 7

    recorder.begin(op)
    open_cell = my_cell(recorder)
    recorder.end(op, aux=3)

    (record,) = read(recorder).records
    assert (record["module"], record["step"], record["aux"]) == ("h.0", 7, 3)
    assert record["start_ns"] == open_cell["start_ns"]
    assert record["value"] >= 0
    assert (open_cell["op"], open_cell["step"]) == (op, 7)
    assert my_cell(recorder) | {"version": 0} == {
        "thread": threading.get_native_id(),
        "op": 0,
        "step": 7,
        "start_ns": 0,
        "version": 0,
    }


def test_the_outer_cell_comes_back_when_an_inner_span_ends(recorder: Recorder) -> None:
    outer, inner = recorder.op("optimizer", "LBFGS"), recorder.op("forward", "Block")

    recorder.begin(outer)
    before = my_cell(recorder)
    recorder.begin(inner)
    assert my_cell(recorder)["op"] == inner
    recorder.end(inner)

    after = my_cell(recorder)
    assert (after["op"], after["start_ns"]) == (outer, before["start_ns"])
    assert after["version"] > before["version"]
    assert after["version"] % 2 == 0


def test_a_span_whose_end_never_came_is_dropped_by_the_end_around_it(recorder: Recorder) -> None:
    outer, inner = recorder.op("optimizer", "A"), recorder.op("forward", "B")

    recorder.begin(outer)
    recorder.begin(inner)
    recorder.end(outer)
    recorder.end(inner)

    assert [record["name"] for record in read(recorder).records] == ["A"]
    assert my_cell(recorder)["op"] == 0


def test_open_spans_do_not_grow_without_end(recorder: Recorder) -> None:
    op = recorder.op("forward", "B")

    for _ in range(10 * MAX_OPEN_SPANS):
        recorder.begin(op)

    assert len(recorder._threads.mine.open) == MAX_OPEN_SPANS


def test_the_end_of_a_step_closes_every_cell_of_its_thread_and_counts_on(recorder: Recorder) -> None:
    op = recorder.op("forward", "B")
    recorder.begin(op)

    recorder.end_step()
    recorder.end_step()

    steps = [(record["kind"], record["step"]) for record in read(recorder).records]
    assert steps == [("step", 0), ("step", 1)]
    first, second = read(recorder).records
    assert second["start_ns"] == first["start_ns"] + first["value"]
    assert (my_cell(recorder)["op"], my_cell(recorder)["step"]) == (0, 2)


def test_a_step_that_broke_off_leaves_no_record_and_its_number_is_used_again(recorder: Recorder) -> None:
    recorder.begin_step()
    recorder.end_step(recorded=False)
    recorder.begin_step()
    recorder.end_step()

    assert [record["step"] for record in read(recorder).records] == [0]


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan])
def test_a_sample_keeps_the_bits_of_its_number(recorder: Recorder, value: float) -> None:
    recorder.sample("loss", value)

    (record,) = read(recorder).records
    assert struct.pack("<d", record["value"]) == struct.pack("<d", value)


def test_pause_stops_every_record_from_the_next_step_on_but_not_the_cells(recorder: Recorder) -> None:
    op = recorder.op("forward", "B")
    command(recorder, pause=1)
    recorder.end_step()

    recorder.begin(op)
    assert my_cell(recorder)["op"] == op
    recorder.end(op)
    recorder.end_step()
    command(recorder)
    recorder.end_step()
    recorder.begin(op)
    recorder.end(op)

    assert [(r["kind"], r["step"]) for r in read(recorder).records] == [("step", 0), ("forward", 3)]


def test_sampling_keeps_every_nth_step_whole_and_all_step_records(recorder: Recorder) -> None:
    op = recorder.op("forward", "B")
    command(recorder, every=3)

    for _ in range(7):
        recorder.begin(op)
        recorder.end(op)
        recorder.end_step()

    records = read(recorder).records
    assert [r["step"] for r in records if r["kind"] == "step"] == list(range(7))
    assert [r["step"] for r in records if r["kind"] == "forward"] == [0, 3, 6]


def test_a_threads_cell_goes_back_when_the_thread_ends(recorder: Recorder) -> None:
    op = recorder.op("forward", "B")
    seen: list[int] = []

    def work() -> None:
        recorder.begin(op)
        seen.extend(cell["op"] for cell in read(recorder).cells)

    free = len(recorder.ring._free_cells)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert op in seen
    assert len(recorder.ring._free_cells) == free
    assert op not in [cell["op"] for cell in read(recorder).cells]


def test_more_threads_than_cells_still_record(recorder: Recorder) -> None:
    op = recorder.op("forward", "B")
    recorder.ring._free_cells.clear()

    def work() -> None:
        recorder.begin(op)
        recorder.end(op)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert len(read(recorder).records) == 1


def test_importing_the_agent_takes_nothing_beyond_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import flightwatch, flightwatch._session;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new - set(sys.stdlib_module_names) - {'flightwatch'}))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
