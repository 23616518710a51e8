from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flightwatch.forward.backoff import Backoff
from flightwatch.forward.forwarder import Forwarder, HostSensors, Patience, has_live_ring
from flightwatch.forward.link import Link
from flightwatch.forward.outbox import Outbox
from flightwatch.forward.roster import Roster
from flightwatch.forward.spool import Spool, read_frames
from flightwatch.wire import flightwatch_pb2 as wire
from ring_oracle import CAPACITY, LockHolder, OracleRing, values_in
from scripted_collector import ScriptedCollector

PATIENT = Patience(linger=0.0, drain=20.0, first=0.0)
AT_ONCE = Patience(linger=0.0, drain=0.1, first=0.0)


class _Impatient(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return min(b, 0.02)


class _Sensors:
    def read(self) -> dict[tuple[str, str], float]:
        return {("", "cpu_busy_ratio"): 0.5}


class _BrokenSensors:
    def read(self) -> dict[tuple[str, str], float]:
        raise ValueError("a kernel of another age")


class Node:
    """A node's directory, with forwarders that come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owners: list[LockHolder] = []

    def ring(self, epoch: int, *, alive: bool = False) -> OracleRing:
        ring = OracleRing(self.folder / "rings" / f"{epoch:016x}.ring", epoch=epoch)
        ring.name("forward", "layers.0")
        if alive:
            self.owners.append(LockHolder(ring.path))
        return ring

    def forwarder(
        self,
        address: str,
        *,
        patience: Patience = PATIENT,
        max_unacked_bytes: int = 16 << 20,
        spool_bytes: int = 1 << 30,
        sensors: HostSensors | None = None,
    ) -> Forwarder:
        roster = self.roster = Roster()
        self.link = Link(
            [address],
            forwarder="f",
            node="node-0",
            greeting=roster.greeting,
            on_refused=lambda frame, problem: self.outbox.refuse(frame, problem),
            on_command=lambda command: self.latest.command(command),
            max_unacked_bytes=max_unacked_bytes,
            backoff=Backoff(_Impatient()),
        )
        spool = Spool(str(self.folder / "spool"), roster.greeting, limit_bytes=spool_bytes, file_bytes=1 << 20)
        self.outbox = Outbox(self.link, spool, roster, quarantine=str(self.folder / "quarantine"))
        self.link.start()
        self.latest = Forwarder(
            str(self.folder),
            self.link,
            self.outbox,
            roster,
            node="node-0",
            sensors=sensors or _Sensors(),
            patience=patience,
        )
        return self.latest

    def spooled(self) -> list[wire.Frame]:
        paths = sorted((self.folder / "spool").glob("*.spool"))
        return [frame for path in paths for frame in read_frames(str(path))]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    for owner in node.owners:
        owner.die()
    node.link.close()


@pytest.fixture
def collector() -> Iterator[ScriptedCollector]:
    scripted = ScriptedCollector()
    yield scripted
    scripted.stop()


def run(forwarder: Forwarder, seconds: float = 30.0) -> None:
    thread = threading.Thread(target=forwarder.run, args=(threading.Event(),), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the forwarder did not come to an end"


def turn_until(forwarder: Forwarder, condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        forwarder.turn()
        time.sleep(0.02)


def records_of(frames: list[wire.Frame], epoch: int) -> list[int]:
    return [v for frame in frames for piece in frame.slices if piece.epoch == epoch for v in values_in(piece.records)]


def ends_of(frames: list[wire.Frame]) -> list[tuple[int, str, int]]:
    return [(end.epoch, end.how, end.records_written) for frame in frames for end in frame.ends]


def test_ring_of_a_finished_process_is_sent_whole_and_removed(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7)
    ring.put_many(0, 5000)
    ring.say_goodbye(5000)

    run(node.forwarder(collector.address))

    assert records_of(collector.frames, 7) == list(range(5000))
    assert ends_of(collector.frames) == [(7, "clean", 5000)]
    assert not ring.path.exists()


def test_start_and_descriptor_come_before_the_records(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7)
    ring.put_many(0, 10)
    ring.say_goodbye(10)

    run(node.forwarder(collector.address))

    kinds = [name for frame in collector.frames for name in ("starts", "ops", "slices") if getattr(frame, name)]
    assert kinds.index("starts") < kinds.index("ops") < kinds.index("slices")
    start = next(start for frame in collector.frames for start in frame.starts)
    assert (start.epoch, start.run, start.node, start.world_size) == (7, "run-1", "node-0", 1)


def test_killed_process_is_told_lost_with_the_records_found(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7, alive=True)
    ring.put_many(0, 100)
    forwarder = node.forwarder(collector.address)
    turn_until(forwarder, lambda: records_of(collector.frames, 7) == list(range(100)))
    ring.put_many(100, 130)
    ring.put(131)

    node.owners[0].die()
    run(forwarder)

    assert records_of(collector.frames, 7) == [*range(130), 131]
    assert ends_of(collector.frames) == [(7, "lost", 132)]
    gaps = [(gap.reason, gap.first_record, gap.last_record) for frame in collector.frames for gap in frame.gaps]
    assert gaps == [("torn", 130, 130)]


def test_records_that_the_goodbye_counts_but_nobody_finds_are_a_gap(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7)
    ring.put_many(0, 10)
    ring.say_goodbye(12)

    run(node.forwarder(collector.address))

    assert ends_of(collector.frames) == [(7, "clean", 12)]
    assert [(gap.reason, gap.count) for frame in collector.frames for gap in frame.gaps] == [("torn", 2)]


def test_next_forwarder_goes_on_behind_what_was_acknowledged(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7, alive=True)
    ring.put_many(0, 100)
    first = node.forwarder(collector.address)
    turn_until(first, lambda: ring.acknowledged() == 100)
    node.link.close()
    collector.frames.clear()
    ring.put_many(100, 150)

    turn_until(node.forwarder(collector.address), lambda: ring.acknowledged() == 150)

    assert records_of(collector.frames, 7) == list(range(100, 150))


def test_live_ring_survives_its_forwarder(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7, alive=True)
    ring.put_many(0, 100)
    stop = threading.Event()
    stop.set()

    node.forwarder(collector.address).run(stop)

    assert ring.path.exists()
    assert ring.acknowledged() == 100
    assert has_live_ring(str(node.folder))


def test_nothing_is_acknowledged_in_the_ring_before_the_collector_says_so(
    node: Node, collector: ScriptedCollector
) -> None:
    collector.acknowledges.clear()
    ring = node.ring(7, alive=True)
    ring.put_many(0, 100)

    turn_until(node.forwarder(collector.address), lambda: records_of(collector.frames, 7))

    assert ring.acknowledged() == 0


def test_cells_and_host_metrics_are_sent(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7, alive=True)
    ring.cell(0, thread=31, op=1, step=4, start_ns=77)

    turn_until(node.forwarder(collector.address), lambda: any(frame.cells for frame in collector.frames))

    cell = next(cell for frame in collector.frames for cell in frame.cells)
    metric = next(metric for frame in collector.frames for metric in frame.metrics)
    assert (cell.epoch, cell.thread, cell.op, cell.step, cell.start_monotonic_ns) == (7, 31, 1, 4, 77)
    assert (metric.node, metric.name, list(metric.value)) == ("node-0", "cpu_busy_ratio", [0.5])


def test_changed_identity_is_told_again(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7, alive=True)
    forwarder = node.forwarder(collector.address)
    turn_until(forwarder, lambda: collector.frames)

    ring.identify(run="run-1", node="node-0", rank=0, world_size=1, coordinates={"dp": 3})

    turn_until(
        forwarder, lambda: any(dict(s.coordinates) == {"dp": 3} for frame in collector.frames for s in frame.starts)
    )


def test_backlog_that_nobody_takes_goes_to_the_spool_and_from_there_to_the_next_collector(node: Node) -> None:
    away = ScriptedCollector()
    away.stop()
    ring = node.ring(7)
    ring.put_many(0, 5000)
    ring.say_goodbye(5000)
    run(node.forwarder(away.address, patience=AT_ONCE))
    assert not ring.path.exists()
    assert records_of(node.spooled(), 7) == list(range(5000))

    back = ScriptedCollector(port=away.port)
    run(node.forwarder(back.address))

    assert records_of(back.frames, 7) == list(range(5000))
    assert ends_of(back.frames) == [(7, "clean", 5000)]
    assert any(frame.metrics for frame in back.frames)
    assert node.spooled() == []
    back.stop()


def test_reconnection_while_the_spool_is_sent_greets_with_its_processes(node: Node) -> None:
    away = ScriptedCollector()
    away.stop()
    ring = node.ring(7)
    ring.put_many(0, 1000)
    ring.say_goodbye(1000)
    run(node.forwarder(away.address, patience=AT_ONCE))
    silent = ScriptedCollector(port=away.port)
    silent.acknowledges.clear()
    forwarder = node.forwarder(silent.address)
    turn_until(forwarder, lambda: records_of(silent.frames, 7))

    silent.stop()
    back = ScriptedCollector(port=away.port)
    turn_until(forwarder, lambda: ends_of(back.frames))

    assert [start.epoch for start in back.frames[0].starts] == [7]
    assert records_of(back.frames, 7) == list(range(1000))
    back.stop()


def test_ring_about_to_be_overrun_is_copied_to_the_spool(node: Node) -> None:
    away = ScriptedCollector()
    away.stop()
    ring = node.ring(7, alive=True)
    forwarder = node.forwarder(away.address, max_unacked_bytes=1)
    forwarder.turn()  # its start fills the little room there is
    ring.put_many(0, 100)
    forwarder.turn()
    assert records_of(node.spooled(), 7) == []

    ring.put_many(100, CAPACITY // 2 + 100)
    forwarder.turn()

    assert records_of(node.spooled(), 7) == list(range(100_000))
    assert ring.acknowledged() == 100_000


def test_full_spool_drops_the_oldest_and_says_so(node: Node) -> None:
    away = ScriptedCollector()
    away.stop()
    ring = node.ring(7)
    ring.put_many(0, CAPACITY)  # 7 MB
    ring.say_goodbye(CAPACITY)
    run(node.forwarder(away.address, patience=AT_ONCE, spool_bytes=3 << 20))

    back = ScriptedCollector(port=away.port)
    run(node.forwarder(back.address))

    arrived = set(records_of(back.frames, 7))
    gaps = [gap for frame in back.frames for gap in frame.gaps]
    assert {gap.reason for gap in gaps} == {"spool_full"}
    assert sum(gap.count for gap in gaps) + len(arrived) == CAPACITY
    assert max(arrived) == CAPACITY - 1
    back.stop()


def test_refused_frame_is_quarantined_and_becomes_a_gap(node: Node, collector: ScriptedCollector) -> None:
    collector.refuses = {0}
    ring = node.ring(7)
    ring.put_many(0, 10)
    ring.say_goodbye(10)

    run(node.forwarder(collector.address))

    (body,) = (node.folder / "quarantine").glob("*.frame")
    assert records_of([wire.Frame.FromString(body.read_bytes())], 7) == list(range(10))
    assert "scripted" in body.with_suffix(".txt").read_text()
    assert not ring.path.exists()


def test_gap_and_end_of_a_refused_frame_are_said_though_its_ring_is_gone(
    node: Node, collector: ScriptedCollector
) -> None:
    collector.refuses = {0}
    ring = node.ring(7)
    ring.put_many(0, 10)
    ring.say_goodbye(10)

    run(node.forwarder(collector.address))

    gaps = [gap for frame in collector.frames for gap in frame.gaps]
    assert [(gap.epoch, gap.reason, gap.first_record, gap.last_record) for gap in gaps] == [(7, "refused", 0, 9)]
    assert ends_of(collector.frames) == [(7, "clean", 10)]


def test_ring_stays_when_neither_collector_nor_spool_takes_it(node: Node) -> None:
    away = ScriptedCollector()
    away.stop()
    ring = node.ring(7)
    ring.put_many(0, 100)
    ring.say_goodbye(100)
    (node.folder / "spool").write_bytes(b"")  # no directory can be made here

    run(node.forwarder(away.address, patience=AT_ONCE))

    assert ring.path.exists()
    (node.folder / "spool").unlink()
    back = ScriptedCollector(port=away.port)
    run(node.forwarder(back.address))
    assert records_of(back.frames, 7) == list(range(100))
    assert not [gap for frame in back.frames for gap in frame.gaps]
    back.stop()


def test_spool_file_knows_every_op_that_its_records_use(node: Node) -> None:
    away = ScriptedCollector()
    away.stop()
    node.forwarder(away.address, max_unacked_bytes=1)
    told = wire.Frame(starts=[wire.RankStart(epoch=7, run="r")], ops=[wire.OpDescriptor(epoch=7, op=1, op_key=1)])
    node.roster.enter(told.starts, told.ops)
    node.outbox.keep(wire.Frame(slices=[wire.Slice(epoch=7, records=bytes(32))]))  # its file stays open
    new = wire.Frame(ops=[wire.OpDescriptor(epoch=7, op=2, op_key=2)])
    node.roster.enter([], new.ops)
    node.outbox.send(new, lambda: None)  # there is room: it goes to the collector

    node.outbox.keep(wire.Frame(slices=[wire.Slice(epoch=7, first_record=1, records=bytes(32))]))

    newest = max((node.folder / "spool").glob("*.spool"))
    assert [op.op for frame in read_frames(str(newest)) for op in frame.ops] == [1, 2]


def test_sensor_that_fails_does_not_end_the_forwarder(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7)
    ring.put_many(0, 10)
    ring.say_goodbye(10)

    run(node.forwarder(collector.address, sensors=_BrokenSensors()))

    assert records_of(collector.frames, 7) == list(range(10))


@pytest.mark.parametrize("every", ["ten", "0", "-1", str(1 << 32)])
def test_malformed_sampling_command_is_passed_over(node: Node, collector: ScriptedCollector, every: str) -> None:
    ring = node.ring(7, alive=True)
    for command in ({"every": every}, {"every": "10"}):
        collector.send_command(wire.Command(id="1", verb="set_sampling", arguments=command))

    turn_until(
        node.forwarder(collector.address),
        lambda: ring.path.read_bytes()[0x2008:0x2010] == bytes([0, 0, 0, 0, 10, 0, 0, 0]),
    )


def test_file_that_is_no_ring_is_left_alone_and_harms_nobody(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7)
    ring.put_many(0, 10)
    ring.say_goodbye(10)
    stranger = node.folder / "rings" / "stranger.ring"
    stranger.write_bytes(b"hello")

    run(node.forwarder(collector.address))

    assert records_of(collector.frames, 7) == list(range(10))
    assert stranger.read_bytes() == b"hello"


def test_damaged_name_table_costs_no_other_rank_anything(node: Node, collector: ScriptedCollector) -> None:
    good, bad = node.ring(7), node.ring(8)
    for ring in (good, bad):
        ring.put_many(0, 10)
        ring.say_goodbye(10)
    with bad.path.open("r+b") as file:
        file.seek(0x3000 + 4)
        file.write(b"not json")

    run(node.forwarder(collector.address))

    assert records_of(collector.frames, 7) == list(range(10))
    assert records_of(collector.frames, 8) == []
    assert bad.path.exists()


@pytest.mark.parametrize(
    "wrong",
    [{"rank": 5}, {"local_rank": 1}, {"run": "r" * 201}, {"run": "a\0b"}, {"node": "n" * 254}, {"attempt": 1 << 31}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_identity_that_a_collector_would_refuse_is_not_sent(
    node: Node, collector: ScriptedCollector, wrong: dict[str, object]
) -> None:
    good, bad = node.ring(7), node.ring(8)
    bad.identify(**{"run": "run-1", "node": "node-0", "rank": 0, "world_size": 1, **wrong})
    for ring in (good, bad):
        ring.put_many(0, 10)
        ring.say_goodbye(10)

    run(node.forwarder(collector.address))

    assert {start.epoch for frame in collector.frames for start in frame.starts} == {7}
    assert bad.path.exists()


def test_once_sends_what_is_there_and_leaves_live_rings(node: Node, collector: ScriptedCollector) -> None:
    live, dead = node.ring(7, alive=True), node.ring(8)
    live.put_many(0, 100)
    dead.put_many(0, 50)

    run(node.forwarder(collector.address, patience=Patience(drain=10.0, once=True)))

    assert records_of(collector.frames, 7) == list(range(100))
    assert records_of(collector.frames, 8) == list(range(50))
    assert live.path.exists()
    assert not dead.path.exists()


def test_sampling_command_reaches_the_control_block(node: Node, collector: ScriptedCollector) -> None:
    ring = node.ring(7, alive=True)
    collector.send_command(wire.Command(id="1", verb="set_sampling", arguments={"every": "10"}))

    turn_until(
        node.forwarder(collector.address),
        lambda: ring.path.read_bytes()[0x2008:0x2010] == bytes([0, 0, 0, 0, 10, 0, 0, 0]),
    )


def test_forwarder_without_any_ring_goes_away(node: Node, collector: ScriptedCollector) -> None:
    run(node.forwarder(collector.address))

    assert node.spooled() == []
