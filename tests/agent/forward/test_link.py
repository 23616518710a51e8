from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from flightwatch.forward.backoff import Backoff
from flightwatch.forward.link import Link
from flightwatch.wire import flightwatch_pb2 as wire
from scripted_collector import ScriptedCollector


class _Impatient(random.Random):
    """Draws 20 ms whatever the ceiling, so that tests need not wait."""

    def uniform(self, a: float, b: float) -> float:
        return min(b, 0.02)


def a_frame(first: int) -> wire.Frame:
    return wire.Frame(slices=[wire.Slice(epoch=1, first_record=first, records=bytes(32))])


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@pytest.fixture
def collector() -> Iterator[ScriptedCollector]:
    scripted = ScriptedCollector()
    yield scripted
    scripted.stop()


@pytest.fixture
def make_link() -> Iterator[Callable[..., Link]]:
    links: list[Link] = []

    def make(address: str, **more: object) -> Link:
        arguments: dict[str, object] = {"greeting": list, **more}
        link = Link([address], forwarder="f", node="n", backoff=Backoff(_Impatient()), **arguments)  # type: ignore[arg-type]  # tests pass what Link takes
        links.append(link)
        link.start()
        return link

    yield make
    for link in links:
        link.close()


def test_frames_arrive_in_order_and_are_acknowledged(
    collector: ScriptedCollector, make_link: Callable[..., Link]
) -> None:
    link = make_link(collector.address)
    acked: list[int] = []

    for first in range(50):
        link.submit(a_frame(first), lambda first=first: acked.append(first))  # type: ignore[misc]  # a default binds the loop's value

    assert link.wait_drained(20)
    assert collector.first_records() == list(range(50))
    assert acked == list(range(50))
    assert link.acked_frames == 50


def test_hello_and_greeting_go_first(collector: ScriptedCollector, make_link: Callable[..., Link]) -> None:
    link = make_link(collector.address, greeting=lambda: [wire.Frame(starts=[wire.RankStart(epoch=5)])])
    link.submit(a_frame(0))

    assert link.wait_drained(20)
    assert [hello.node for hello in collector.hellos] == ["n"]
    assert [bool(frame.starts) for frame in collector.frames] == [True, False]


def test_every_frame_has_a_number_of_its_own(collector: ScriptedCollector, make_link: Callable[..., Link]) -> None:
    link = make_link(collector.address, greeting=lambda: [wire.Frame(), wire.Frame()])
    for first in range(10):
        link.submit(a_frame(first))

    assert link.wait_drained(20)
    numbers = [frame.frame for frame in collector.frames]
    assert len(numbers) == len(set(numbers)) == 12
    assert all(frame.sent_unix_ns > 0 for frame in collector.frames)


def test_frames_wait_for_a_collector_that_comes_later(make_link: Callable[..., Link]) -> None:
    early = ScriptedCollector()
    early.stop()
    link = make_link(early.address)
    link.submit(a_frame(0))
    wait_until(lambda: link.last_error)
    assert not link.connected
    assert "UNAVAILABLE" in link.last_error

    late = ScriptedCollector(port=early.port)

    assert link.wait_drained(20)
    assert late.first_records() == [0]
    assert link.last_error == ""
    late.stop()


def test_unacknowledged_frames_are_sent_again_in_order_after_a_crash(make_link: Callable[..., Link]) -> None:
    dying = ScriptedCollector()
    link = make_link(dying.address, greeting=lambda: [wire.Frame(starts=[wire.RankStart(epoch=5)])])
    for first in range(3):
        link.submit(a_frame(first))
    assert link.wait_drained(20)
    dying.acknowledges.clear()
    for first in range(3, 8):
        link.submit(a_frame(first))
    wait_until(lambda: len(dying.first_records()) == 8)

    dying.stop()
    heir = ScriptedCollector(port=dying.port)

    assert link.wait_drained(20)
    assert heir.first_records() == [3, 4, 5, 6, 7]
    assert heir.frames[0].starts
    heir.stop()


def test_collector_that_answers_late_gets_each_frame_once(make_link: Callable[..., Link]) -> None:
    slow = ScriptedCollector()
    slow.acknowledges.clear()
    link = make_link(slow.address)
    link.submit(a_frame(0))

    wait_until(lambda: slow.first_records() == [0])
    assert not link.wait_drained(0.2)
    assert link.connected

    assert slow.first_records() == [0]
    slow.stop()


def test_refused_frame_is_set_aside_and_the_rest_goes_on(
    collector: ScriptedCollector, make_link: Callable[..., Link]
) -> None:
    collector.refuses = {2}
    refused: list[tuple[int, str]] = []
    settled: list[int] = []
    link = make_link(
        collector.address,
        on_refused=lambda frame, problem: refused.append((frame.slices[0].first_record, problem)),
    )

    for first in range(5):
        link.submit(a_frame(first), lambda first=first: settled.append(first))  # type: ignore[misc]  # as above

    assert link.wait_drained(20)
    assert refused == [(2, "slices[0].records: scripted")]
    assert sorted(settled) == [0, 1, 2, 3, 4]
    assert set(collector.first_records()) == {0, 1, 3, 4}


def test_refusal_without_a_frame_number_costs_the_oldest_frame(make_link: Callable[..., Link]) -> None:
    nameless = ScriptedCollector(names_frame=False)
    nameless.refuses = {0}
    refused: list[wire.Frame] = []
    link = make_link(nameless.address, on_refused=lambda frame, problem: refused.append(frame))

    link.submit(a_frame(0))
    link.submit(a_frame(1))

    assert link.wait_drained(20)
    assert [frame.slices[0].first_record for frame in refused] == [0]
    nameless.stop()


def test_refused_hello_costs_no_frame(make_link: Callable[..., Link]) -> None:
    older = ScriptedCollector(refuses_hello=True)
    refused: list[wire.Frame] = []
    link = make_link(older.address, on_refused=lambda frame, problem: refused.append(frame))
    link.submit(a_frame(0))
    wait_until(lambda: len(older.hellos) >= 3)
    older.stop()

    upgraded = ScriptedCollector(port=older.port)

    assert link.wait_drained(20)
    assert refused == []
    assert upgraded.first_records() == [0]
    upgraded.stop()


def test_refused_greeting_is_not_sent_again(collector: ScriptedCollector, make_link: Callable[..., Link]) -> None:
    collector.refuses = {77}
    refused: list[wire.Frame] = []
    link = make_link(
        collector.address,
        greeting=lambda: [a_frame(77), wire.Frame(starts=[wire.RankStart(epoch=5)])],
        on_refused=lambda frame, problem: refused.append(frame),
    )
    link.submit(a_frame(0))

    assert link.wait_drained(20)
    assert len(refused) == 1
    assert [bool(frame.starts) for frame in collector.frames] == [True, False]


def test_room_ends_at_the_limit_and_returns_with_acknowledgements(make_link: Callable[..., Link]) -> None:
    away = ScriptedCollector()
    away.stop()
    link = make_link(away.address, max_unacked_bytes=100)

    assert link.has_room()
    for first in range(4):
        link.submit(a_frame(first))
    assert not link.has_room()

    back = ScriptedCollector(port=away.port)
    assert link.wait_drained(20)
    assert link.has_room()
    back.stop()


def test_second_collector_is_tried_when_the_first_is_away(collector: ScriptedCollector) -> None:
    away = ScriptedCollector()
    away.stop()
    link = Link(
        [away.address, collector.address], forwarder="f", node="n", greeting=list, backoff=Backoff(_Impatient())
    )
    link.start()
    link.submit(a_frame(0))

    assert link.wait_drained(20)
    link.close()


def test_command_reaches_its_taker(collector: ScriptedCollector, make_link: Callable[..., Link]) -> None:
    collector.send_command(wire.Command(id="c-1", verb="set_sampling"))
    came = threading.Event()
    commands: list[wire.Command] = []

    def take(command: wire.Command) -> None:
        commands.append(command)
        came.set()

    make_link(collector.address, on_command=take)

    assert came.wait(20)
    assert [command.verb for command in commands] == ["set_sampling"]


def test_failing_greeting_does_not_end_delivery(collector: ScriptedCollector, make_link: Callable[..., Link]) -> None:
    calls: list[int] = []

    def greeting() -> list[wire.Frame]:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("once")
        return []

    link = make_link(collector.address, greeting=greeting)
    link.submit(a_frame(0))

    assert link.wait_drained(20)
    assert len(calls) == 2


def test_frame_too_large_for_any_collector_is_refused_at_once(
    collector: ScriptedCollector, make_link: Callable[..., Link]
) -> None:
    link = make_link(collector.address)

    with pytest.raises(ValueError, match="a collector takes"):
        link.submit(wire.Frame(slices=[wire.Slice(records=bytes(1 << 20))]))

    assert link.wait_drained(1)


def test_what_was_not_acknowledged_can_be_taken_after_the_end(make_link: Callable[..., Link]) -> None:
    away = ScriptedCollector()
    away.stop()
    link = make_link(away.address)
    for first in range(3):
        link.submit(a_frame(first))

    link.close()

    assert [frame.slices[0].first_record for frame in link.take_unacked()] == [0, 1, 2]
    assert link.take_unacked() == []
