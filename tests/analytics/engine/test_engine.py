"""The engine on a job that plays step by step."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from analytics.findings import Finding
from analytics.window import Window
from collector.store.records import Rank, Run
from collector.store.records.session import UnitOfWork


def test_a_fault_of_a_hundred_steps_is_one_incident_opened_and_resolved_in_time(job: Any) -> None:
    job.telemetry.slow[2] = range(100, 200)

    for step in range(0, 300, 2):
        job.play(range(step, step + 1))
    job.telemetry.advance_to(299)
    job.end()
    job.tick()

    (incident,) = job.incidents()
    assert (incident.kind, incident.cause, incident.entity, incident.state) == (
        "slow_rank",
        "compute",
        "rank:2",
        "resolved",
    )
    assert 100 < incident.opened_step <= 140
    assert 200 < incident.resolved_step < 300
    assert incident.finding["resolution"]["reason"] == "absent"
    assert [delivery.event for delivery in job.deliveries()] == ["incident.opened", "incident.resolved"]


def test_a_healthy_run_opens_nothing(job: Any) -> None:
    job.play(range(0, 100))

    assert job.incidents() == []
    assert job.findings() == []


def test_history_is_asked_for_once(job: Any) -> None:
    job.telemetry.advance_to(200)
    job.tick()

    job.play(range(201, 230))

    assert job.telemetry.asked[0] == (161, 200)
    assert job.telemetry.asked[1:] == [(step, step) for step in range(201, 230)]


def test_detectors_get_the_newest_steps_and_no_more(job: Any) -> None:
    job.play(range(0, 120))

    assert job.detector.windows[-1] == (80, 119, 0)


def test_a_burst_of_steps_is_looked_at_in_several_looks(job: Any) -> None:
    job.telemetry.advance_to(50)
    job.tick()

    job.telemetry.advance_to(62)
    job.tick()

    assert [last for _, last, _ in job.detector.windows] == [50, 54, 58, 62]


def test_nothing_new_is_no_look_and_no_revision(job: Any) -> None:
    job.play(range(0, 5))
    before = job.revision()

    looks = job.tick()

    assert (looks, job.revision()) == (0, before)


def test_each_look_moves_the_revision(job: Any) -> None:
    job.play(range(0, 5))

    assert job.revision() == 5


def test_a_step_waits_for_its_last_rank(job: Any) -> None:
    job.play(range(0, 10))
    job.telemetry.reached[:-1] = 10

    assert job.tick() == 0


def test_a_silent_rank_holds_the_others_up_only_for_the_grace_and_is_filled_in_later(job: Any) -> None:
    job.play(range(0, 10))
    job.telemetry.reached[:-1] = 12
    waited = 0
    while job.tick() == 0:
        waited += 1
    missing = job.detector.windows[-1]

    job.telemetry.reached[-1] = 12
    job.tick(seconds=6)

    assert waited == 10
    assert missing == (0, 12, 3)
    assert job.detector.windows[-1] == (0, 12, 0)


def test_a_rank_that_ended_is_not_waited_for(job: Any) -> None:
    job.play(range(0, 10))
    with UnitOfWork(job.records, writing=True) as work:
        work.session.execute(update(Rank).where(Rank.rank == 7).values(ended_at=job.clock.utc()))
    job.telemetry.reached[:-1] = 11

    assert job.tick() == 1


def test_ranks_that_are_most_of_a_node_are_one_incident_on_the_node(new_job: Callable[..., Any]) -> None:
    job = new_job(n_ranks=16, ranks_per_node=4)
    for rank in (4, 5, 6, 7):
        job.telemetry.slow[rank] = range(0, 1000)

    job.play(range(0, 40))

    assert [(incident.entity, incident.ranks) for incident in job.incidents()] == [("node:n1", [4, 5, 6, 7])]


def test_a_restart_of_the_engine_doubles_nothing_and_resolves_what_was_open(job: Any) -> None:
    job.telemetry.slow[2] = range(20, 80)
    job.play(range(0, 60))

    job.engine = job.new_engine()
    job.play(range(60, 160))

    (incident,) = job.incidents()
    assert incident.state == "resolved"
    assert 80 < incident.resolved_step < 150
    assert len(job.deliveries()) == 2


def test_a_run_that_ended_while_the_engine_was_down_is_closed_at_its_start(job: Any) -> None:
    job.telemetry.slow[2] = range(0, 1000)
    job.play(range(0, 40))
    job.end()

    job.engine = job.new_engine()
    job.tick()

    (incident,) = job.incidents()
    assert (incident.state, incident.finding["resolution"]["reason"]) == ("resolved", "run_ended")


def test_the_end_of_a_run_resolves_with_that_reason(job: Any) -> None:
    job.telemetry.slow[2] = range(0, 1000)
    job.play(range(0, 40))

    job.end()
    job.tick()
    job.tick()

    (incident,) = job.incidents()
    assert incident.finding["resolution"]["reason"] == "run_ended"
    body = json.loads(job.deliveries()[1].body)
    assert (body["type"], body["data"]["until"]["reason"]) == ("incident.resolved", "run_ended")


def test_a_store_that_is_away_is_told_once_and_waited_for(job: Any, caplog: pytest.LogCaptureFixture) -> None:
    job.play(range(0, 10))
    job.telemetry.is_away = True
    job.telemetry.advance_to(14)
    with caplog.at_level(logging.INFO, logger="analytics.engine"):
        for _ in range(5):
            job.tick()
        job.telemetry.is_away = False
        job.tick()

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert job.detector.windows[-1] == (0, 14, 0)


class BrokenDetector:
    """Fails whenever asked."""

    name = "broken"

    def detect(self, window: Window) -> list[Finding]:
        raise ZeroDivisionError("its bug")


def test_a_broken_detector_is_counted_and_does_not_stop_the_others(job: Any, caplog: pytest.LogCaptureFixture) -> None:
    job.engine = job.new_engine([BrokenDetector(), job.detector])
    job.telemetry.slow[2] = range(0, 1000)

    job.play(range(0, 20))

    assert job.engine.panel.failures_total == {"broken": 20}
    assert len(job.incidents()) == 1
    assert [record.message[:24] for record in caplog.records if record.exc_info] == ["detector broken failed o"]


def test_a_detector_that_broke_does_not_pass_for_health(job: Any) -> None:
    job.telemetry.slow[2] = range(0, 1000)
    job.play(range(0, 30))
    job.detector.detect = BrokenDetector().detect  # an instance that breaks from here on

    job.play(range(30, 100))

    assert [incident.state for incident in job.incidents()] == ["firing"]


def test_a_new_attempt_starts_an_empty_window_on_its_own_steps(job: Any) -> None:
    job.play(range(0, 60))
    job.start_attempt(1)
    job.telemetry.advance_to(30)

    job.play(range(31, 41))

    assert job.detector.windows[-1] == (1, 40, 0)


def test_two_engines_on_one_store_open_one_incident(job: Any) -> None:
    job.telemetry.slow[2] = range(0, 1000)
    other = job.new_engine()

    for step in range(0, 30):
        job.play(range(step, step + 1))
        other.tick()

    assert len(job.incidents()) == 1
    assert len(job.deliveries()) == 1


def test_a_quiet_run_is_not_asked_for_again(job: Any) -> None:
    job.play(range(0, 10))
    for _ in range(60):
        job.clock.seconds += 1
        job.engine.tick()
    job.telemetry.is_away = True  # a question would be refused, and told

    job.clock.seconds += 1

    assert job.engine.tick() == 0
    with UnitOfWork(job.records, writing=True) as work:
        work.session.execute(update(Run).values(last_seen_at=job.clock.utc()))
    job.telemetry.is_away = False
    job.telemetry.advance_to(10)
    assert job.engine.tick() == 1


class StopsTheEngine:
    """A detector during whose first look on a step >= `at` the process is told to end."""

    name = "stops/1"

    def __init__(self, stop: threading.Event, at: int) -> None:
        self.stop, self.at = stop, at
        self.looks: list[int] = []

    def detect(self, window: Window) -> list[Finding]:
        self.looks.append(int(window.steps[-1]))
        if self.looks[-1] >= self.at:
            self.stop.set()
        return []


def test_told_to_stop_it_takes_no_further_look_however_many_are_due(job: Any) -> None:
    detector = StopsTheEngine(threading.Event(), at=54)
    job.engine = job.new_engine([detector])
    job.telemetry.advance_to(50)
    job.tick()

    job.telemetry.advance_to(62)
    job.engine.run(detector.stop, tick_seconds=0)

    assert detector.looks == [50, 54]


def test_told_to_stop_at_a_runs_end_it_leaves_the_rest_to_the_next_process(job: Any) -> None:
    stop = threading.Event()
    job.telemetry.slow[2] = range(0, 1000)
    job.engine = job.new_engine([job.detector, StopsTheEngine(stop, at=54)])
    for step in range(0, 51):
        job.telemetry.advance_to(step)
        job.tick()
    job.telemetry.advance_to(62)
    job.end()

    job.engine.run(stop, tick_seconds=0)
    open_after_stop = [incident.state for incident in job.incidents()]
    job.engine = job.new_engine()
    job.tick()

    assert open_after_stop == ["firing"]
    assert [incident.state for incident in job.incidents()] == ["resolved"]
