from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from starlette.testclient import TestClient

from collector.errors import StoreUnreachableError
from collector.settings import Settings
from dashboard.app import create_app
from dashboard_scene import SimulatedTelemetry, seed_run


class AbsentTelemetry(SimulatedTelemetry):
    def compute_seconds(self, *_args: Any, **_steps: Any) -> Any:
        raise StoreUnreachableError("the telemetry store does not answer at http://127.0.0.1:1")

    def ping(self) -> None:
        raise StoreUnreachableError("the telemetry store does not answer at http://127.0.0.1:1")


def client_of(engine: Engine, telemetry: SimulatedTelemetry, folder: Path) -> TestClient:
    return TestClient(create_app(Settings(data_dir=folder), engine=engine, source=telemetry))


@pytest.fixture
def client(engine: Engine, telemetry: SimulatedTelemetry, tmp_path: Path) -> Iterator[TestClient]:
    with client_of(engine, telemetry, tmp_path) as client:
        yield client


def test_runs_come_newest_first_with_coverage_and_open_incidents(client: TestClient, engine: Engine) -> None:
    seed_run(engine, run_id="later", n_ranks=8, last_step=3)

    later, demo = client.get("/api/v1/runs").json()

    assert [later["id"], demo["id"]] == ["later", "demo"]
    assert [demo["ranks"], demo["nodes"], demo["open_incidents"], demo["last_step"]] == [1024, 128, 1, 299]


def test_one_run_and_its_incidents(client: TestClient) -> None:
    assert client.get("/api/v1/runs/demo").json()["name"] == "gpt-1024"
    (incident,) = client.get("/api/v1/runs/demo/incidents").json()
    assert incident["nodes"] == ["node-0009"]
    assert client.get(f"/api/v1/incidents/{incident['id']}").json() == incident


def test_a_run_id_may_hold_a_slash(client: TestClient, engine: Engine) -> None:
    seed_run(engine, run_id="team/exp", n_ranks=8, last_step=3)

    assert client.get("/api/v1/runs/team%2Fexp").json()["id"] == "team/exp"
    assert client.get("/api/v1/runs/team/exp/incidents").json() == []


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/api/v1/runs/none", "'none'"),
        ("/api/v1/runs/none/incidents", "'none'"),
        ("/api/v1/runs/none/heatmap", "'none'"),
        ("/api/v1/incidents/none", "'none'"),
        ("/api/v1/nothing", "/api/v1/nothing"),
        ("/nothing", "/nothing"),
    ],
)
def test_what_is_not_there_is_told_in_json(client: TestClient, path: str, word: str) -> None:
    answer = client.get(path)

    assert answer.status_code == 404
    assert word in answer.json()["detail"]


def test_heatmap_shows_the_slow_node(client: TestClient) -> None:
    heatmap = client.get("/api/v1/runs/demo/heatmap", params={"steps": 150, "rows": 128, "columns": 150}).json()

    worst = max(heatmap["rows"], key=lambda row: sum(row["percent"]))
    assert worst["label"] == "node-0009 · ranks 72-79"
    assert [heatmap["first_step"], heatmap["last_step"], heatmap["ranks"]] == [150, 299, 1024]
    assert min(worst["percent"][60:]) > 125


def test_heatmap_bounds_are_checked(client: TestClient) -> None:
    assert client.get("/api/v1/runs/demo/heatmap", params={"rows": 5000}).status_code == 422


def test_revisions_move_with_the_run(client: TestClient, engine: Engine) -> None:
    from dashboard_scene import advance

    before = client.get("/api/v1/revisions").json()["demo"]
    advance(engine)

    assert client.get("/api/v1/revisions").json()["demo"] != before


def test_health_names_the_store_that_is_away(engine: Engine, tmp_path: Path) -> None:
    with client_of(engine, AbsentTelemetry(), tmp_path) as client:
        answer = client.get("/healthz")

    assert answer.status_code == 503
    assert answer.json()["records"] == "ok"
    assert "telemetry store" in answer.json()["telemetry"]


def test_a_store_that_is_away_is_503_and_not_a_traceback(engine: Engine, tmp_path: Path) -> None:
    with client_of(engine, AbsentTelemetry(), tmp_path) as client:
        answer = client.get("/api/v1/runs/demo/heatmap")

    assert answer.status_code == 503
    assert "does not answer" in answer.json()["detail"]


def test_openapi_describes_the_api_alone(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]

    assert set(paths) == {
        "/healthz",
        "/api/v1/runs",
        "/api/v1/revisions",
        "/api/v1/runs/{run_id}",
        "/api/v1/runs/{run_id}/incidents",
        "/api/v1/runs/{run_id}/heatmap",
        "/api/v1/incidents/{incident_id}",
    }


def test_root_leads_to_the_pages(client: TestClient) -> None:
    answer = client.get("/", follow_redirects=False)

    assert [answer.status_code, answer.headers["location"]] == [307, "/ui/"]


@pytest.mark.parametrize("path", ["/ui/", "/ui/runs/demo", "/ui/runs/team%2Fexp", "/ui/incidents/01INCIDENT"])
def test_every_page_is_served_and_takes_nothing_from_elsewhere(client: TestClient, path: str) -> None:
    document = client.get(path)

    assert document.status_code == 200
    assert "_dash-" in document.text
    assert "https://" not in document.text
    assert "http://" not in document.text


def test_assets_are_local(client: TestClient) -> None:
    for name in ("flightwatch.css", "live.js", "age.js", "theme.js", "icon.svg"):
        assert client.get(f"/ui/assets/{name}").status_code == 200
