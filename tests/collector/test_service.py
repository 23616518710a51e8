from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from collector.errors import PortInUseError
from collector.server import check_port
from collector.service import SERVICE_NAME
from flightwatch.errors import FlightwatchError
from flightwatch.forward.link import Link
from flightwatch.wire import flightwatch_pb2 as wire
from wire_examples import EPOCH, FakeSink, RunningCollector, a_frame, packed_records

HELLO = wire.ForwarderMessage(hello=wire.Hello(protocol=1, forwarder="f", node="node-0"))


class RawStream:
    """A stream on which the test may send any bytes."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._call = self._channel.stream_stream(f"/{SERVICE_NAME}/Stream", None, wire.CollectorMessage.FromString)(
            iter(self._outgoing.get, None), timeout=30
        )

    def send(self, *messages: wire.ForwarderMessage | bytes) -> None:
        for message in messages:
            self._outgoing.put(message if isinstance(message, bytes) else message.SerializeToString())

    def answer(self) -> wire.CollectorMessage:
        answer: wire.CollectorMessage = next(self._call)
        return answer

    def refusal(self) -> tuple[grpc.StatusCode, str, dict[str, str]]:
        """Return code, details and trailing metadata with which the collector ended the stream."""
        with pytest.raises(grpc.RpcError) as ended:
            list(self._call)
        return ended.value.code(), ended.value.details(), dict(ended.value.trailing_metadata())

    def close(self) -> None:
        self._outgoing.put(None)
        self._channel.close()


def framed(frame: wire.Frame) -> wire.ForwarderMessage:
    return wire.ForwarderMessage(frame=frame)


@pytest.fixture
def sink() -> FakeSink:
    return FakeSink()


@pytest.fixture
def collector(sink: FakeSink) -> Iterator[RunningCollector]:
    running = RunningCollector(sink)
    yield running
    sink.gate.set()
    sink.broken = False
    running.stop()


@pytest.fixture
def stream(collector: RunningCollector) -> Iterator[RawStream]:
    stream = RawStream(collector.address)
    yield stream
    stream.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_welcome_tells_the_rules(stream: RawStream) -> None:
    stream.send(HELLO)

    welcome = stream.answer().welcome

    assert (welcome.max_message_bytes, welcome.flush_interval_ms) == (1 << 20, 500)
    assert welcome.reconnect_window_ms >= 500


def test_frame_is_acknowledged_after_its_rows_are_written(stream: RawStream, sink: FakeSink) -> None:
    sink.gate.clear()
    frame = a_frame(5)
    frame.sent_unix_ns = 123
    stream.send(HELLO, framed(frame))
    stream.answer()
    answers: list[wire.CollectorMessage] = []
    reader = threading.Thread(target=lambda: answers.append(stream.answer()))
    reader.start()
    reader.join(0.3)
    assert answers == []

    sink.gate.set()

    reader.join(20)
    ack = answers[0].ack
    assert (ack.frame, ack.frame_sent_unix_ns) == (5, 123)
    assert 0 < ack.received_unix_ns <= ack.answered_unix_ns
    assert len(sink.rows()) == 5


def test_failing_store_delays_the_acknowledgement_and_loses_nothing(stream: RawStream, sink: FakeSink) -> None:
    sink.broken = True
    stream.send(HELLO, framed(a_frame(1)))
    until(lambda: sink.failures)

    sink.broken = False

    stream.answer()
    assert stream.answer().ack.frame == 1
    assert len(sink.rows()) == 5


MALFORMED_MESSAGES = {
    "message": b"\xff\xff\xff\xff",
    "frame": HELLO.SerializeToString(),
    "slices[0].records": framed(
        wire.Frame(frame=9, slices=[wire.Slice(epoch=EPOCH, records=packed_records(2)[:-1])])
    ).SerializeToString(),
    "slices[0].epoch": framed(wire.Frame(frame=9, slices=[wire.Slice(epoch=77)])).SerializeToString(),
    "ops[0].kind": framed(
        wire.Frame(frame=9, ops=[wire.OpDescriptor(epoch=EPOCH, op=2, op_key=3, kind="x")])
    ).SerializeToString(),
    "metrics[0].value": framed(
        wire.Frame(frame=9, metrics=[wire.Metric(node="n", name="m", value=[1.0])])
    ).SerializeToString(),
}


@pytest.mark.parametrize("field", MALFORMED_MESSAGES)
def test_malformed_message_ends_its_stream_naming_the_field_and_no_other(
    collector: RunningCollector, sink: FakeSink, field: str
) -> None:
    other = Link([collector.address], forwarder="o", node="node-1", greeting=list)
    other.start()
    other.submit(a_frame(epoch=0x22, count=3))
    assert other.wait_drained(20)
    stream = RawStream(collector.address)
    stream.send(HELLO, framed(a_frame(1)))
    stream.answer()

    stream.send(MALFORMED_MESSAGES[field])
    code, details, metadata = stream.refusal()

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert field in details
    if b"\x08\x09" in MALFORMED_MESSAGES[field]:
        assert metadata["flightwatch-frame"] == "9"
    other.submit(a_frame(epoch=0x22, first=3, count=3))
    assert other.wait_drained(20)
    assert other.last_error == ""
    assert {record for epoch, record in sink.rows() if epoch == 0x22} == set(range(6))
    other.close()
    stream.close()


def test_frame_that_a_store_refuses_ends_its_stream_and_no_other(
    collector: RunningCollector, stream: RawStream, sink: FakeSink
) -> None:
    sink.refuses = {1}
    other = RawStream(collector.address)
    for one in (stream, other):
        one.send(HELLO)
        one.answer()

    stream.send(framed(a_frame(9)))
    other.send(framed(a_frame(4, first=100)))

    assert other.answer().ack.frame == 4
    code, details, metadata = stream.refusal()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("frame: a store refuses its rows")
    assert metadata["flightwatch-frame"] == "9"
    other.close()


def test_refusal_of_a_huge_field_still_arrives(stream: RawStream) -> None:
    frame = a_frame(7)
    frame.ops[0].kind = "\N{SNOWMAN}" * 200_000
    stream.send(HELLO, framed(frame))

    code, details, metadata = stream.refusal()

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("ops[0].kind")
    assert metadata["flightwatch-frame"] == "7"


def test_stream_without_hello_is_refused(stream: RawStream) -> None:
    stream.send(framed(a_frame(1)))

    code, details, _ = stream.refusal()

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "hello" in details


def test_protocol_of_the_future_is_refused(stream: RawStream) -> None:
    stream.send(wire.ForwarderMessage(hello=wire.Hello(protocol=2, node="n")))

    code, details, _ = stream.refusal()

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("hello.protocol: 2")


def test_message_above_a_mebibyte_is_refused(stream: RawStream, sink: FakeSink) -> None:
    stream.send(HELLO, framed(a_frame(1, count=40_000)))

    code, _, _ = stream.refusal()

    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert sink.rows() == []


def test_each_stream_begins_without_knowledge_of_others(collector: RunningCollector, stream: RawStream) -> None:
    stream.send(HELLO, framed(a_frame(1)))
    stream.answer()
    assert stream.answer().ack.frame == 1
    second = RawStream(collector.address)
    second.send(HELLO, framed(wire.Frame(slices=[wire.Slice(epoch=EPOCH, records=packed_records(1))])))

    code, details, _ = second.refusal()

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("slices[0].epoch")
    second.close()


def test_stopping_collector_writes_and_acknowledges_what_it_read(sink: FakeSink) -> None:
    running = RunningCollector(sink, interval_seconds=0.5)
    link = Link([running.address], forwarder="f", node="n", greeting=list)
    link.start()
    link.submit(a_frame(count=7))
    until(lambda: link.connected)
    time.sleep(0.2)

    running.stop()

    assert len(sink.rows()) == 7
    assert link.wait_drained(5)
    link.close()


def test_stream_that_vanishes_leaves_its_rows_and_the_collector_in_order(
    collector: RunningCollector, sink: FakeSink
) -> None:
    for number in range(5):
        stream = RawStream(collector.address)
        stream.send(HELLO, framed(a_frame(1, first=10 * number)))
        stream.answer()
        stream.answer()
        stream.close()

    last = RawStream(collector.address)
    last.send(HELLO)
    assert last.answer().welcome.collector == "test"
    assert len(sink.rows()) == 25
    last.close()


def test_health_service_says_serving(collector: RunningCollector) -> None:
    with grpc.insecure_channel(collector.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", SERVICE_NAME):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_hundred_streams_at_once_all_get_their_acknowledgements(collector: RunningCollector, sink: FakeSink) -> None:
    links = [Link([collector.address], forwarder=f"f{i}", node=f"n{i}", greeting=list) for i in range(100)]
    for number, link in enumerate(links):
        link.start()
        link.submit(a_frame(epoch=number + 1, count=2))

    assert all(link.wait_drained(30) for link in links)
    assert sorted(sink.rows()) == sorted(itertools.product(range(1, 101), range(2)))
    for link in links:
        link.close()


def test_port_in_use_is_said_in_one_line(collector: RunningCollector) -> None:
    with pytest.raises(PortInUseError) as refusal:
        check_port(collector.address)

    assert str(collector.port) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("listen", ["7460", "host:port", "", "203.0.113.7:0"])
def test_address_that_cannot_be_listened_on_is_refused(listen: str) -> None:
    with pytest.raises(FlightwatchError):
        check_port(listen)
