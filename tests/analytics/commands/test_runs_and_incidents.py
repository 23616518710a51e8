"""What the verbs runs and incidents print, and with which exit code they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Capture = pytest.CaptureFixture[str]
Verb = Callable[..., int]


def test_an_empty_store_says_how_to_fill_it(shelf: Any, flightwatch: Verb, capsys: Capture) -> None:
    code = flightwatch("runs")

    assert code == 0
    assert "flightwatch demo" in capsys.readouterr().out


def test_runs_are_listed_with_what_matters(shelf: Any, flightwatch: Verb, capsys: Capture) -> None:
    shelf.run("run-1", name="gpt")
    shelf.incident("01AAA")

    code = flightwatch("runs")

    header, line = capsys.readouterr().out.splitlines()
    assert code == 0
    assert header.split() == ["RUN", "NAME", "STATE", "RANKS", "STEP", "STARTED", "HEARD", "INCIDENTS"]
    assert line.split() == ["run-1", "gpt", "running", "4", "41", "3", "h", "ago", "1", "s", "ago", "1", "firing"]


def test_runs_as_json(shelf: Any, flightwatch: Verb, capsys: Capture) -> None:
    shelf.run("run-1")
    shelf.run("run-2", state="ended", last_step=-1, ended_at=shelf.now)

    flightwatch("runs", "--json", "--state", "ended")

    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["id"], run["state"], run["last_step"], run["firing_incidents"]) == ("run-2", "ended", None, 0)


def test_no_incident_is_exit_code_0(shelf: Any, flightwatch: Verb, capsys: Capture) -> None:
    assert flightwatch("incidents") == 0
    assert capsys.readouterr().out == "no incidents\n"


def test_a_firing_incident_is_exit_code_1(shelf: Any, flightwatch: Verb, capsys: Capture) -> None:
    shelf.run("run-1")
    shelf.incident("01AAA")

    code = flightwatch("incidents")

    line = capsys.readouterr().out.splitlines()[1]
    assert code == 1
    assert line.split()[:6] == ["01AAA", "firing", "rank:2", "slow_rank", "compute", "100"]


def test_resolved_incidents_are_exit_code_0(shelf: Any, flightwatch: Verb, capsys: Capture) -> None:
    shelf.run("run-1")
    shelf.incident("01AAA", state="resolved", resolved_at=shelf.now, resolved_step=230)

    assert flightwatch("incidents", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["incidents"][0]["resolved_step"] == 230


def test_incidents_are_chosen_by_run_and_state(shelf: Any, flightwatch: Verb, capsys: Capture) -> None:
    for run in ("run-1", "run-2"):
        shelf.run(run)
    shelf.incident("01AAA")
    shelf.incident("01BBB", run="run-2", state="resolved")

    code = flightwatch("incidents", "list", "--run", "run-2", "--state", "resolved", "--json")

    assert code == 0
    assert [item["id"] for item in json.loads(capsys.readouterr().out)["incidents"]] == ["01BBB"]


def test_a_limit_hides_no_firing_incident(shelf: Any, flightwatch: Verb, capsys: Capture) -> None:
    shelf.run("run-1")
    shelf.incident("01AAA")
    shelf.incident("01BBB", state="resolved", opened_at=shelf.now, entity="rank:3")

    code = flightwatch("incidents", "--limit", "1")

    assert code == 1
    assert "01AAA" in capsys.readouterr().out


def test_show_prints_what_why_evidence_and_next(shelf: Any, flightwatch: Verb, capsys: Capture) -> None:
    shelf.run("run-1")
    shelf.incident("01AAA")
    shelf.delivery("msg_1", "01AAA", state="sent", attempts=2, last_error="")

    code = flightwatch("incidents", "show", "01A")

    assert code == 1
    assert capsys.readouterr().out.splitlines() == [
        "01AAA  firing  warning",
        "run run-1",
        "",
        "What      Rank 2 computes 1.5 times slower than its peers.",
        "          rank:2: slow_rank, cause compute, confidence 97%",
        "          ranks 2",
        "          nodes n0",
        "When      steps 100 to 150; opened at step 110, still there",
        "Cost      the job takes 1.40 times as long as without it; 0.25 accelerator-hours lost so far",
        "Evidence  computes longer than its peers (1.5, normal 1)",
        "Ruled out sequence length: equal on all ranks",
        "Doubt     A run of the same batch without it.",
        "Next      Drain node n0.",
        "Told      incident.opened through webhook: sent after 2 tries",
    ]


def test_show_as_json_holds_the_whole_finding(shelf: Any, flightwatch: Verb, capsys: Capture) -> None:
    shelf.run("run-1")
    shelf.incident("01AAA", state="resolved", resolved_step=220, finding={"resolution": {"reason": "absent"}})

    code = flightwatch("incidents", "show", "01AAA", "--json")

    shown = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (shown["finding"]["resolution"]["reason"], shown["deliveries"]) == ("absent", [])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["show"], "say which incident"),
        (["show", "02"], "no incident '02'"),
        (["show", "01"], "begins several incidents"),
        (["list", "01AAA"], "did you mean `flightwatch incidents show 01AAA`?"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    shelf: Any, flightwatch: Verb, capsys: Capture, arguments: list[str], complaint: str
) -> None:
    shelf.run("run-1")
    shelf.incident("01AAA")
    shelf.incident("01BBB", entity="rank:3")

    code = flightwatch("incidents", *arguments)

    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert complaint in captured.err


@pytest.mark.parametrize("verb", ["runs", "incidents"])
def test_a_store_that_was_never_migrated_is_exit_code_2(
    verb: str, flightwatch: Verb, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLIGHTWATCH_DATA", str(tmp_path / "new"))

    code = flightwatch(verb)

    assert code == 2
    assert "run `flightwatch migrate`" in capsys.readouterr().err
