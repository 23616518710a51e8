from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from fleet.clock import FastClock
from fleet.faults import Fault, FaultSchedule, slow_node
from fleet.job import Job, JobPlan
from fleet.stage_program import FORWARD_OP
from fleet.topology import Topology
from flightwatch._layout import RECORD_BYTES, RECORD_DTYPE
from flightwatch.wire import flightwatch_pb2 as wire

TOPOLOGY = Topology(dp=2, pp=2, tp=8)
RECORDS_PER_STEP = 39  # of each rank when there are two stages and four micro-batches
BEGIN_UNIX_NS = 1_800_000_000 * 10**9


class FakeCollector:
    """Takes frames, keeps a copy, acknowledges at once; may have no room for a while."""

    def __init__(self, refuse_room_times: int = 0) -> None:
        self.frames: list[wire.Frame] = []
        self._refuse_room_times = refuse_room_times

    def submit(self, frame: wire.Frame, on_ack: Callable[[], None] | None = None) -> None:
        self.frames.append(wire.Frame.FromString(frame.SerializeToString()))
        if on_ack is not None:
            on_ack()

    def has_room(self) -> bool:
        self._refuse_room_times -= 1
        return self._refuse_room_times < 0

    def records(self) -> dict[int, np.ndarray]:
        """All records of each epoch, by number, checked to be without holes."""
        parts: dict[int, list[bytes]] = {}
        for piece in itertools.chain.from_iterable(frame.slices for frame in self.frames):
            mine = parts.setdefault(piece.epoch, [])
            assert piece.first_record == sum(map(len, mine)) // RECORD_BYTES
            mine.append(piece.records)
        return {epoch: np.frombuffer(b"".join(mine), dtype=RECORD_DTYPE) for epoch, mine in parts.items()}


def make_job(faults: FaultSchedule | None = None, seed: int = 0, **options: Callable[..., None]) -> Job:
    epochs = np.arange(100, 100 + TOPOLOGY.n_ranks, dtype=np.uint64)
    plan = JobPlan(TOPOLOGY, run="a-run", seed=seed)
    return Job(plan, faults or FaultSchedule(), clock=FastClock(BEGIN_UNIX_NS), epochs=epochs, **options)


def run(job: Job, steps: int = 3, sender: FakeCollector | None = None) -> FakeCollector:
    sender = sender or FakeCollector()
    job.run(sender, steps=steps, should_stop=lambda: False)
    return sender


def test_every_rank_sends_every_record_once_and_says_at_the_end_how_many() -> None:
    job = make_job()

    sent = run(job)

    records = sent.records()
    assert {epoch: 3 * RECORDS_PER_STEP for epoch in range(100, 132)} == {k: len(v) for k, v in records.items()}
    ends = {end.epoch: (end.how, end.records_written) for frame in sent.frames for end in frame.ends}
    assert dict.fromkeys(range(100, 132), ("clean", 3 * RECORDS_PER_STEP)) == ends
    assert 32 * 3 * RECORDS_PER_STEP == job.stream.records_written == job.stream.records_acknowledged


def test_steps_of_the_records_are_those_of_the_job() -> None:
    records = run(make_job()).records()[100]

    assert Counter(records["step"].tolist()) == {0: RECORDS_PER_STEP, 1: RECORDS_PER_STEP, 2: RECORDS_PER_STEP}


def test_greeting_names_every_rank_its_node_and_every_op_that_it_writes() -> None:
    job = make_job()
    frames = list(job.stream.greeting())

    starts = {start.epoch: start for frame in frames for start in frame.starts}
    ops = {(op.epoch, op.op) for frame in frames for op in frame.ops}

    assert [start.rank for _, start in sorted(starts.items())] == list(range(32))
    last = starts[131]
    assert (last.node, last.local_rank, dict(last.coordinates)) == ("node-003", 7, {"dp": 1, "pp": 1, "tp": 7})
    for epoch, records in run(job).records().items():
        assert {(epoch, op) for op in np.unique(records["lap_op"] >> 8).tolist()} <= ops


def test_start_times_of_records_lie_in_the_wall_time_of_the_job() -> None:
    job = make_job()
    start = next(iter(job.stream.greeting())).starts[0]
    records = run(job).records()[start.epoch]

    offset_ns = start.start_unix_ns - start.start_monotonic_ns

    assert records["start_ns"].min() + offset_ns >= BEGIN_UNIX_NS
    assert records["start_ns"].max() + offset_ns < BEGIN_UNIX_NS + 4 * 10**9


def test_cells_come_once_a_second_and_tell_an_op_that_covers_that_moment() -> None:
    sent = run(make_job(), steps=6)
    records = sent.records()

    cells = [cell for frame in sent.frames for cell in frame.cells]

    assert {1} == set(Counter((cell.epoch, cell.seen_unix_ns) for cell in cells).values())
    seconds = sorted({(cell.seen_unix_ns - BEGIN_UNIX_NS) / 1e9 for cell in cells})
    assert [round(second, 6) for second in seconds][:5] == [1.0, 2.0, 3.0, 4.0, 5.0]
    busy = [cell for cell in cells if cell.op]
    assert len(busy) > 0.9 * len(cells)
    known = {
        (epoch, int(row["lap_op"]) >> 8, int(row["step"]), int(row["start_ns"]))
        for epoch, rows in records.items()
        for row in rows
    }
    ended = [cell for cell in busy if cell.step < 6]
    assert all((cell.epoch, cell.op, cell.step, cell.start_monotonic_ns) in known for cell in ended)


def test_slow_node_shows_in_its_records_and_in_its_temperature() -> None:
    fault = slow_node(TOPOLOGY, "node-002", factor=1.4, first_step=0, last_step=99)
    sent = run(make_job(FaultSchedule([fault])), steps=40)

    forward = {
        epoch - 100: np.median(rows["value"][rows["lap_op"] >> 8 == FORWARD_OP])
        for epoch, rows in sent.records().items()
    }
    heat = {
        metric.node: metric.value[0]
        for frame in sent.frames
        for metric in frame.metrics
        if metric.name == "temperature_celsius"
    }

    slow, peers = [forward[rank] for rank in range(16, 24)], [forward[rank] for rank in range(24, 32)]
    assert 1.35 < np.median(slow) / np.median(peers) < 1.45
    assert max(heat, key=lambda node: heat[node]) == "node-002"


def test_steps_are_longer_while_a_node_is_slow() -> None:
    fault = slow_node(TOPOLOGY, "node-002", factor=1.4, first_step=10, last_step=19)
    moments: list[float] = []
    clock = FastClock(0)
    job = Job(
        JobPlan(TOPOLOGY, run="a-run"),
        FaultSchedule([fault]),
        clock=clock,
        epochs=np.arange(1, 33, dtype=np.uint64),
        on_step=lambda step, faults: moments.append(clock.monotonic_ns() / 1e9),
    )

    run(job, steps=30)

    seconds = np.diff(moments)
    assert 1.15 < np.median(seconds[10:19]) / np.median(seconds[:9]) < 1.4
    assert 0.95 < np.median(seconds[21:]) / np.median(seconds[:9]) < 1.05


def test_observer_is_told_the_faults_of_each_step_when_it_begins() -> None:
    fault = slow_node(TOPOLOGY, "node-002", factor=1.4, first_step=1, last_step=1)
    told: list[tuple[int, tuple[Fault, ...]]] = []

    run(make_job(FaultSchedule([fault]), on_step=lambda step, faults: told.append((step, faults))))

    assert [(0, ()), (1, (fault,)), (2, ())] == told


def test_nothing_is_dropped_when_the_link_has_no_room_for_a_while() -> None:
    pauses: list[float] = []
    job = make_job(pause=pauses.append)

    sent = run(job, sender=FakeCollector(refuse_room_times=50))

    assert len(sent.records()[100]) == 3 * RECORDS_PER_STEP
    assert len(pauses) == 50
    assert job.seconds_without_room == sum(pauses)


def test_waiting_for_room_is_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    run(make_job(pause=lambda seconds: None), sender=FakeCollector(refuse_room_times=400))

    assert [r.message for r in caplog.records] == [
        "the collector does not keep up or does not answer: waiting since 5 s"
    ]


def test_a_job_that_is_stopped_ends_its_ranks_even_without_room() -> None:
    stops = iter([False, False])
    job = make_job(pause=lambda seconds: None)
    sender = FakeCollector(refuse_room_times=10**9)

    job.run(sender, steps=None, should_stop=lambda: next(stops, True))

    assert sum(len(frame.ends) for frame in sender.frames) == 32


def test_same_seed_gives_the_same_bytes() -> None:
    first, again, other = (run(make_job(seed=seed)).records()[117].tobytes() for seed in (3, 3, 4))

    assert first == again
    assert first != other
