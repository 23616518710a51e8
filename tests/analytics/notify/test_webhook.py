"""The signed webhook against a real receiver that verifies with the standard's own library."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from analytics.notify.channel import Message, Outcome, Result
from analytics.notify.message import BODY_BYTES, OPENED, RESOLVED, body_of
from analytics.notify.webhook import WebhookChannel, WebhookSettingsError
from collector.store.records import Incident

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def send(receiver: Any, make_incident: Callable[..., Incident]) -> Callable[[], Outcome]:
    def send_once() -> Outcome:
        channel = WebhookChannel(receiver.url, SECRET, timeout_seconds=0.5)
        body = body_of(make_incident(NOW), OPENED, at=NOW, public_url="http://fw:8460")
        outcome = channel.send(Message("msg_1", OPENED, body))
        channel.close()
        return outcome

    return send_once


def test_a_receiver_verifies_the_signature_and_reads_the_culprit_first(receiver: Any, send: Any) -> None:
    outcome = send()

    assert outcome == Outcome(Result.SENT)
    assert receiver.refused == []
    (message,) = receiver.received
    assert (message["type"], message["timestamp"]) == ("incident.opened", "2026-05-01T00:00:00+00:00")
    data = message["data"]
    assert next(iter(data)) == "entity"
    assert (data["entity"], data["ranks"], data["nodes"], data["kind"], data["cause"]) == (
        "rank:2",
        [2],
        ["n0"],
        "slow_rank",
        "compute",
    )
    assert data["since"]["step"] == 100
    assert data["next"] == "Drain node n0."
    assert data["cost"]["slowdown"] == 1.4
    assert data["url"] == "http://fw:8460/ui/incidents/01INCIDENT"
    assert receiver.ids == ["msg_1"]


@pytest.mark.parametrize("status", [200, 202, 204])
def test_any_2xx_is_success(receiver: Any, send: Any, status: int) -> None:
    receiver.answers = [(status, {})]

    assert send().result is Result.SENT


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_other_statuses_are_worth_another_try(receiver: Any, send: Any, status: int) -> None:
    receiver.answers = [(status, {})]

    assert send() == Outcome(Result.FAILED, f"HTTP {status}")


def test_a_redirect_is_not_followed(receiver: Any, send: Any) -> None:
    receiver.answers = [(307, {"location": receiver.url + "/elsewhere"})]

    outcome = send()

    assert outcome == Outcome(Result.FAILED, "HTTP 307 redirects, which is not followed")
    assert len(receiver.ids) == 1


def test_410_says_that_nothing_more_is_wanted(receiver: Any, send: Any) -> None:
    receiver.answers = [(410, {})]

    assert send().result is Result.GONE


@pytest.mark.parametrize(
    ("status", "value", "expected"), [(429, "17", 17.0), (503, "3", 3.0), (429, "soon", 0.0), (500, "17", 0.0)]
)
def test_the_wait_that_a_throttling_receiver_asks_for_is_read(
    receiver: Any, send: Any, status: int, value: str, expected: float
) -> None:
    receiver.answers = [(status, {"retry-after": value})]

    assert send().wait_seconds == expected


def test_the_wait_may_be_a_date(receiver: Any, send: Any) -> None:
    until = datetime.now(UTC) + timedelta(hours=2)
    receiver.answers = [(503, {"retry-after": format_datetime(until, usegmt=True)})]

    assert send().wait_seconds == pytest.approx(7200, abs=60)


def test_an_endless_wait_is_cut_to_a_day(receiver: Any, send: Any) -> None:
    receiver.answers = [(429, {"retry-after": "99999999999"})]

    assert send().wait_seconds == 86400


def test_a_receiver_that_does_not_answer_in_time_has_failed(receiver: Any, send: Any) -> None:
    receiver.hold.clear()

    assert send() == Outcome(Result.FAILED, "no answer in time")


def test_a_receiver_that_is_not_there_has_failed(receiver: Any, send: Any) -> None:
    receiver.close()

    assert send().result is Result.FAILED


@pytest.mark.parametrize(
    ("url", "secret", "complaint"),
    [
        ("ftp://host/x", SECRET, "must be http"),
        ("http://", SECRET, "must be http"),
        ("http://host/x", "", "FLIGHTWATCH_WEBHOOK_SECRET_FILE"),
        ("http://host/x", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "does not begin with whsec_"),
        ("http://host/x", "whsec_c2hvcnQ=", "has 5 bytes"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(url: str, secret: str, complaint: str) -> None:
    with pytest.raises(WebhookSettingsError, match=complaint) as caught:
        WebhookChannel(url, secret)

    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("event", [OPENED, RESOLVED])
def test_a_body_stays_small_whatever_the_incident_holds(make_incident: Callable[..., Incident], event: str) -> None:
    evidence = {"kind": "k" * 9000, "text": "é" * 9000, "value": 1, "unit": "s", "baseline": None}
    incident = make_incident(
        NOW,
        ranks=list(range(160_000)),
        nodes=["n" * 250 + str(node) for node in range(20_000)],
        summary="s" * 50_000,
        finding={"next": "n" * 50_000, "evidence": [evidence] * 40},
    )

    text = body_of(incident, event, at=NOW, public_url="http://fw")

    data = json.loads(text)["data"]
    assert len(text.encode()) < BODY_BYTES
    assert (data["rank_count"], data["node_count"]) == (160_000, 20_000)
    assert data["summary"].endswith("…")
