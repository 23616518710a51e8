"""The outbox delivers at least once, in order, with one id, and gives up in the end."""

from __future__ import annotations

import threading
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from analytics.notify.channel import Message, Outcome, Result
from analytics.notify.message import OPENED, RESOLVED
from analytics.notify.outbox import JITTER, LADDER_SECONDS, LEASE_SECONDS, Outbox
from analytics.notify.webhook import WebhookChannel

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class FakeChannel:
    """Answers as told, then with success; keeps what it was given."""

    name = "webhook"

    def __init__(self, *outcomes: Outcome | BaseException) -> None:
        self.outcomes = list(outcomes)
        self.sent: list[Message] = []

    def send(self, message: Message) -> Outcome:
        self.sent.append(message)
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome(Result.SENT)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def close(self) -> None:
        pass


FAILED = Outcome(Result.FAILED, "HTTP 500")


def new_outbox(box: Any, channel: FakeChannel) -> Outbox:
    return Outbox(box.records, {"webhook": channel}, clock=box.clock, random=Random(0))


def test_what_is_due_is_sent_once(box: Any) -> None:
    box.post_both()
    channel = FakeChannel()
    outbox = new_outbox(box, channel)

    tries = [outbox.deliver_due() for _ in range(4)]

    assert tries == [1, 1, 0, 0]
    assert [message.id for message in channel.sent] == ["msg_1", "msg_2"]
    assert box.states() == {"msg_1": "sent", "msg_2": "sent"}
    assert box.rows()["msg_1"].sent_at == box.clock()


def test_resolved_waits_for_opened(box: Any) -> None:
    box.post_both()
    channel = FakeChannel(FAILED, FAILED)
    outbox = new_outbox(box, channel)

    for _ in range(200):
        outbox.deliver_due()
        box.clock.pass_(1)

    assert [message.event for message in channel.sent] == [OPENED, OPENED, OPENED, RESOLVED]


def test_tries_climb_the_ladder_with_jitter_and_one_id_and_end(box: Any) -> None:
    box.post(OPENED, "msg_1")
    channel = FakeChannel(*[FAILED] * 100)
    outbox = new_outbox(box, channel)
    waits = []

    while outbox.deliver_due():
        row = box.rows()["msg_1"]
        if row.state == "pending":
            waits.append((row.next_attempt_at - box.clock()).total_seconds())
            box.clock.now = row.next_attempt_at

    assert len(waits) == len(LADDER_SECONDS)
    for wait, rung in zip(waits, LADDER_SECONDS, strict=True):
        assert rung <= wait <= rung * (1 + JITTER)
    assert {message.id for message in channel.sent} == {"msg_1"}
    assert (box.rows()["msg_1"].state, box.rows()["msg_1"].last_error) == ("dead", "HTTP 500")


def test_a_wait_that_the_receiver_asked_for_is_kept(box: Any) -> None:
    box.post(OPENED, "msg_1")
    outbox = new_outbox(box, FakeChannel(Outcome(Result.FAILED, "HTTP 429", wait_seconds=900)))

    outbox.deliver_due()

    assert box.rows()["msg_1"].next_attempt_at == box.clock() + timedelta(seconds=900)


def test_a_crash_between_send_and_commit_sends_again_with_the_same_id(box: Any) -> None:
    box.post(OPENED, "msg_1")
    crashed = FakeChannel(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        new_outbox(box, crashed).deliver_due()
    channel = FakeChannel()
    restarted = new_outbox(box, channel)

    before_the_lease_ends = restarted.deliver_due()
    box.clock.pass_(LEASE_SECONDS)
    restarted.deliver_due()

    assert before_the_lease_ends == 0
    assert [message.id for message in crashed.sent + channel.sent] == ["msg_1", "msg_1"]
    assert box.states() == {"msg_1": "sent"}


def test_two_workers_do_not_send_the_same_thing_at_once(box: Any) -> None:
    box.post(OPENED, "msg_1")
    second = FakeChannel()

    class Slow(FakeChannel):
        def send(self, message: Message) -> Outcome:
            new_outbox(box, second).deliver_due()
            return super().send(message)

    new_outbox(box, Slow()).deliver_due()

    assert second.sent == []
    assert box.states() == {"msg_1": "sent"}


def test_a_receiver_that_is_gone_gets_nothing_more(box: Any) -> None:
    box.post_both()
    channel = FakeChannel(Outcome(Result.GONE, "HTTP 410"))
    outbox = new_outbox(box, channel)

    for _ in range(3):
        outbox.deliver_due()
    box.post(OPENED, "msg_3")
    outbox.deliver_due()

    assert [message.id for message in channel.sent] == ["msg_1"]
    assert set(box.states().values()) == {"dead"}


def test_an_opening_that_was_never_delivered_takes_its_resolution_along(box: Any) -> None:
    box.post_both()
    outbox = new_outbox(box, FakeChannel(*[FAILED] * (len(LADDER_SECONDS) + 1)))

    for _ in range(len(LADDER_SECONDS) + 1):
        outbox.deliver_due()
        box.clock.pass_(86_400)

    assert box.states() == {"msg_1": "dead", "msg_2": "dead"}
    assert box.rows()["msg_2"].last_error == "its opening was never delivered"


def test_a_channel_that_breaks_is_a_failed_try(box: Any) -> None:
    box.post(OPENED, "msg_1")
    outbox = new_outbox(box, FakeChannel(RuntimeError("its bug")))

    outbox.deliver_due()

    assert box.rows()["msg_1"].last_error == "RuntimeError: its bug"
    assert box.rows()["msg_1"].state == "pending"


def test_the_worker_delivers_to_a_real_receiver_through_a_failure(box: Any, receiver: Any) -> None:
    box.post_both()
    receiver.answers = [(500, {})]
    channel = WebhookChannel(receiver.url, SECRET)
    outbox = Outbox(box.records, {"webhook": channel}, clock=box.clock, random=Random(0))
    stop = threading.Event()
    worker = threading.Thread(target=outbox.run, args=(stop,))

    worker.start()
    for _ in range(400):
        if len(receiver.received) == 3:
            break
        if receiver.ids:
            box.clock.pass_(1)
        stop.wait(0.05)
    stop.set()
    worker.join(10)
    channel.close()

    assert not worker.is_alive()
    assert receiver.refused == []
    assert receiver.ids == ["msg_1", "msg_1", "msg_2"]
    assert [message["type"] for message in receiver.received] == [OPENED, OPENED, RESOLVED]
