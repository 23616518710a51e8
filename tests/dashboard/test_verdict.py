from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sqlalchemy import Engine

from dashboard import queries
from dashboard.queries import RunRow
from dashboard.verdict import SILENT_SECONDS, verdict_on
from dashboard_scene import START, seed_run


def running(engine: Engine) -> RunRow:
    return queries.list_runs(engine)[0]


def test_an_open_incident_speaks_with_its_why_and_next(engine: Engine) -> None:
    verdict = verdict_on(running(engine), queries.list_incidents(engine, "demo"), now=START)

    assert verdict.level == "critical"
    assert "node-0009" in verdict.headline
    assert verdict.why.startswith("Ranks 72-79 took 0.77 s")
    assert verdict.next.startswith("Drain node-0009")
    assert dict(verdict.facts)["since"] == "step 200"
    assert dict(verdict.facts)["job slowdown"] == "1.22×"


def test_the_dearest_of_several_speaks_and_the_others_are_listed(engine: Engine) -> None:
    first = queries.list_incidents(engine, "demo")[0]
    second = replace(first, id="02", summary="rank 3 waits for input", slowdown=1.1)

    verdict = verdict_on(running(engine), [first, second], now=START)

    assert verdict.incident_id == first.id
    assert [one.id for one in verdict.others] == ["02"]


def test_silence_is_not_health(empty_engine: Engine) -> None:
    seed_run(empty_engine)

    calm = verdict_on(running(empty_engine), [], now=START + timedelta(seconds=SILENT_SECONDS))
    silent = verdict_on(running(empty_engine), [], now=START + timedelta(seconds=SILENT_SECONDS + 1))

    assert [calm.level, silent.level] == ["ok", "silent"]


def test_ok_is_not_said_before_a_detector_has_looked(empty_engine: Engine) -> None:
    seed_run(empty_engine)
    unseen = replace(running(empty_engine), revision=0)

    assert verdict_on(unseen, [], now=START).level == "waiting"


def test_a_run_without_a_step_waits(empty_engine: Engine) -> None:
    seed_run(empty_engine, last_step=-1)

    assert verdict_on(running(empty_engine), [], now=START).level == "waiting"


def test_an_ended_run_is_not_called_silent(empty_engine: Engine) -> None:
    seed_run(empty_engine, state="ended")

    verdict = verdict_on(running(empty_engine), [], now=START + timedelta(days=2))

    assert verdict.level == "ended"
    assert "no incident" in verdict.headline
