from __future__ import annotations

import json
from dataclasses import replace

import pytest
from plotly.utils import PlotlyJSONEncoder
from sqlalchemy import Engine

from dashboard import queries
from dashboard.backstage import Backstage
from dashboard.callbacks.panels_content import Panels
from dashboard.callbacks.routing import page_at
from dashboard.figures.palette import LIGHT
from dashboard.pages.incident import incident_body, incident_page, incident_records
from dashboard.pages.run import axes_of, shape, standing_rows
from dashboard.pages.runs import runs_table
from dashboard.pulse import Pulse
from dashboard.run_cache import RunCache
from dashboard_scene import START, SimulatedTelemetry, advance, seed_run


def stage_of(engine: Engine, telemetry: SimulatedTelemetry | None = None) -> Backstage:
    source = telemetry or SimulatedTelemetry(nonfinite_steps=frozenset({120}))
    return Backstage(engine, source, RunCache(engine, source), Pulse(lambda: {}), now=lambda: START)


def shown(component: object) -> str:
    return json.dumps(component, cls=PlotlyJSONEncoder, ensure_ascii=False)


def test_an_empty_list_says_what_to_run_next(empty_engine: Engine) -> None:
    text = shown(runs_table(queries.list_runs(empty_engine), START))

    assert "flightwatch demo" in text
    assert "flightwatch run -- torchrun" in text


def test_the_list_tells_state_coverage_and_open_incidents(engine: Engine) -> None:
    text = shown(runs_table(queries.list_runs(engine), START))

    for part in ("gpt-1024", "running", "1,024", "128", "1 open incident"):
        assert part in text


@pytest.mark.parametrize(
    ("path", "title", "scope"),
    [
        ("/ui/", "Runs · flightwatch", ""),
        ("/ui/runs/demo", "gpt-1024 · flightwatch", "demo"),
        ("/ui/incidents/01INCIDENT", "node:node-0009 · flightwatch", "demo"),
    ],
)
def test_each_address_has_its_page(engine: Engine, path: str, title: str, scope: str) -> None:
    _, found_title, found_scope = page_at(stage_of(engine), path)

    assert [found_title, found_scope] == [title, scope]


@pytest.mark.parametrize("path", ["/ui/runs/none", "/ui/incidents/none", "/ui/zzz", "/ui/runs", ""])
def test_an_unknown_address_says_so(engine: Engine, path: str) -> None:
    page, _, scope = page_at(stage_of(engine), path)

    assert "There is no" in shown(page) or path == ""
    assert scope == ""


def test_run_panels_name_the_node_and_the_shape(engine: Engine) -> None:
    panels = Panels(stage_of(engine))

    facts, banner, incidents = panels.head("demo")
    figure, rows, note = panels.ratios("demo", 150, LIGHT)

    assert "1,024 of 1,024 ranks" in shown(facts)
    assert "dp 32 × pp 4 × tp 8" in shown(facts)
    assert "All 8 ranks of node-0009" in shown(banner)
    assert "/ui/incidents/01INCIDENT" in shown(banner)
    assert "ranks 72-79" in shown(incidents)
    assert {row["node"] for row in rows[:8]} == {"node-0009"}
    assert {row["rank"] for row in rows[:8]} == set(range(72, 80))
    assert note == "first 100 of 1,024 ranks"
    assert figure.data[0].y[0].startswith("▶ rank 7")


def test_series_and_hosts_are_drawn(engine: Engine) -> None:
    panels = Panels(stage_of(engine))

    times, loss, norm = panels.series("demo", LIGHT)
    hosts = panels.hosts("demo", LIGHT)

    assert len(times.data) == 4
    assert [len(loss.data), len(norm.data)] == [4, 4]
    assert "node-0009" in {trace.name for trace in hosts.data}


def test_a_run_without_data_says_what_is_missing(empty_engine: Engine) -> None:
    seed_run(empty_engine, n_ranks=8, last_step=-1)
    panels = Panels(stage_of(empty_engine))

    figure, rows, _ = panels.ratios("demo", 100, LIGHT)

    assert rows == []
    assert "finished a step" in figure.layout.annotations[0].text


def test_incident_page_has_evidence_doubt_timeline_and_deliveries(engine: Engine) -> None:
    stage = stage_of(engine)
    incident = queries.find_incident(engine, "01INCIDENT")
    assert incident is not None
    findings, deliveries = queries.list_findings(engine, incident.id), queries.list_deliveries(engine, incident.id)

    body, records = shown(incident_body(incident)), shown(incident_records(incident, findings, deliveries, START))

    for part in (
        "They were slower in 99 of 100 steps",
        "sequence length",
        "after a move off node-0009",
        "Drain node-0009",
    ):
        assert part in body
    for part in ("opened", "still open", "incident.opened", "webhook", "sent"):
        assert part in records
    assert "/ui/runs/demo" in shown(incident_page(incident, "gpt-1024"))
    figure = Panels(stage).around(incident.id, LIGHT)
    assert all(label.startswith("▶") for label in figure.data[0].y[:8])
    assert figure.data[0].x[0] == 150


def test_a_past_incident_is_fetched_once_and_cut_after_its_end(engine: Engine) -> None:
    telemetry = SimulatedTelemetry()
    stage = stage_of(engine, telemetry)
    incident = queries.find_incident(engine, "01INCIDENT")
    assert incident is not None
    past = replace(incident, first_step=60, last_step=80, resolved_step=90, state="resolved")
    advance(engine, steps=600)

    views = [stage.around(past) for _ in range(3)]

    assert [views[0].steps[0], views[0].steps[-1]] == [10, 140]
    assert telemetry.asked == [(10, 140)]
    assert views[2] is views[0]


def test_a_resolved_incident_says_when(engine: Engine) -> None:
    incident = queries.find_incident(engine, "01INCIDENT")
    assert incident is not None
    resolved = replace(incident, state="resolved", resolved_at=START, resolved_step=290)

    assert "at step 290, after 1 min 15 s" in shown(incident_records(resolved, [], [], START))
    assert "resolved" in shown(incident_body(resolved))


def test_the_timeline_tells_only_changes_of_the_verdict(engine: Engine) -> None:
    incident = queries.find_incident(engine, "01INCIDENT")
    assert incident is not None
    first, second, third = queries.list_findings(engine, incident.id)
    changed = replace(third, body={**third.body, "summary": "Nine ranks now"})

    same = shown(incident_records(incident, [first, second, third], [], START))
    moved = shown(incident_records(incident, [first, second, changed], [], START))

    assert same.count("updated") == 0
    assert "Nine ranks now" in moved


def test_a_rank_that_says_nothing_any_more_is_not_counted_as_covered(empty_engine: Engine) -> None:
    seed_run(empty_engine, n_ranks=64, last_step=50)
    stage = stage_of(empty_engine, SimulatedTelemetry(n_ranks=64, absent=frozenset((7, s) for s in range(30, 51))))

    assert "63 of 64 ranks" in shown(Panels(stage).head("demo")[0])


def test_nobody_told_says_how_to_be_told(engine: Engine) -> None:
    incident = queries.find_incident(engine, "01INCIDENT")
    assert incident is not None

    assert "FLIGHTWATCH_WEBHOOK_URL" in shown(incident_records(incident, [], [], START))


def test_names_from_jobs_are_text_to_dash(empty_engine: Engine) -> None:
    seed_run(empty_engine, name="<img src=x onerror=alert(1)>", n_ranks=8, last_step=3)

    page = runs_table(queries.list_runs(empty_engine), START)

    assert '"<img src=x onerror=alert(1)>"' in shown(page)  # a child of a component, which React prints as text
    assert "dangerously" not in shown(page)


def test_axes_are_those_on_which_ranks_differ(engine: Engine) -> None:
    topology = queries.topology(engine, "demo")

    assert axes_of(topology) == ["dp", "pp", "tp"]
    assert shape(topology) == "dp 32 × pp 4 × tp 8"


def test_unknown_ratios_are_empty_cells(engine: Engine) -> None:
    _, rows, _ = Panels(stage_of(engine)).ratios("demo", 100, LIGHT)

    assert json.loads(json.dumps(rows)) == rows
    assert standing_rows([]) == []
