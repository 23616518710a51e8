"""The pages in a real browser, over a real store: 1,024 ranks (dp 32 x pp 4 x tp 8), one node 1.4 times as slow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine

from collector.store.records.session import open_engine
from collector.store.telemetry.client import TelemetryClient, connect
from dashboard_rows import insert_host_metrics, insert_names, insert_steps
from dashboard_scene import SimulatedTelemetry, advance, seed_incident, seed_run
from server_fixture import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

chromium = pytest.importorskip("chromium", reason="needs playwright")
pytestmark = chromium.MARKS


class Scene:
    """A running dashboard over a store in which the test lets steps happen."""

    def __init__(self, server: Server) -> None:
        self.url = server.dashboard_url
        self.telemetry = SimulatedTelemetry(nonfinite_steps=frozenset({120}))
        self.client: TelemetryClient = connect(server.store_url)
        self.engine: Engine = open_engine(server.records_url)
        self.last_step = 299
        now = datetime.now(UTC)
        self.begun_ns = int((now - timedelta(seconds=300)).timestamp()) * 1_000_000_000
        insert_names(self.client, "demo")
        insert_steps(self.client, self.telemetry, "demo", first=0, last=299, begun_ns=self.begun_ns)
        insert_host_metrics(self.client, self.telemetry, until_ns=int(now.timestamp() * 1e9))
        seed_run(self.engine, now=now)
        seed_incident(self.engine, now=now)
        earlier = now - timedelta(hours=3)
        seed_run(self.engine, run_id="7b", name="pretrain-7b", n_ranks=64, now=earlier, state="ended", last_step=8123)

    def step(self) -> int:
        """Let one more step finish, and return its number."""
        step = self.last_step = self.last_step + 1
        insert_steps(self.client, self.telemetry, "demo", first=step, last=step, begun_ns=self.begun_ns)
        assert advance(self.engine) == step
        return step


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    try:
        server.start("store")
        migrated = server.verb("migrate")
        assert migrated.returncode == 0, migrated.stderr
        server.start("dashboard")
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def scene(server: Server) -> Scene:
    return Scene(server)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.launched() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1560, "height": 1000})
    page.set_default_timeout(chromium.SLOW_MACHINE_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    page.close()
    assert errors == []


def picture(page: Page, name: str) -> None:
    """Keep a picture for the documents when FLIGHTWATCH_PICTURES names a folder."""
    folder = os.environ.get("FLIGHTWATCH_PICTURES")
    if folder:
        page.wait_for_timeout(1500)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def heatmap_shown(page: Page, graph: str) -> None:
    page.wait_for_selector(f"#{graph} .hm image", state="attached")


def test_the_list_leads_to_the_run(page: Page, scene: Scene) -> None:
    page.goto(f"{scene.url}/")

    page.wait_for_selector("table")
    assert "1 open incident" in page.inner_text("table")
    picture(page, "runs")
    page.click("text=gpt-1024")
    page.wait_for_url("**/ui/runs/demo")


def test_run_page_names_the_node_and_shows_it(page: Page, scene: Scene) -> None:
    page.goto(f"{scene.url}/ui/runs/demo")

    assert "node-0009" in page.inner_text(".banner")
    heatmap_shown(page, "run-heatmap")
    first_row = page.locator(".ag-center-cols-container .ag-row").first
    assert "node-0009" in first_row.inner_text()
    labels = page.locator("#run-heatmap .ytick text").all_text_contents()
    assert len([label for label in labels if label.startswith("▶ rank 7")]) == 8
    page.wait_for_function("document.querySelectorAll('#run-hosts .trace.scatter').length >= 7")
    picture(page, "run")


def test_a_live_update_arrives_without_reload(page: Page, scene: Scene) -> None:
    page.goto(f"{scene.url}/ui/runs/demo")
    heatmap_shown(page, "run-heatmap")
    page.wait_for_selector("#link-state.good:has-text('live')")
    page.evaluate("window.stillTheSamePage = true")

    step = scene.step()

    page.wait_for_selector(f"#run-facts:has-text('step {step}')")
    newest = "document.querySelector('#run-heatmap .js-plotly-plot')._fullData[0].x"
    page.wait_for_function(f"{newest}[{newest}.length - 1] === {step}")
    assert page.evaluate("window.stillTheSamePage") is True


def test_without_a_websocket_the_page_still_follows(browser: Browser, scene: Scene) -> None:
    context = browser.new_context()
    # as behind a proxy that knows no websockets, for which Dash's worker would otherwise connect
    context.add_init_script("delete window.SharedWorker")
    page = context.new_page()
    page.set_default_timeout(chromium.SLOW_MACHINE_MS)
    page.goto(f"{scene.url}/ui/runs/demo")
    page.wait_for_selector("#link-state:has-text('every 5 s')")

    step = scene.step()

    page.wait_for_selector(f"#run-facts:has-text('step {step}')")
    context.close()


def test_the_incident_opens_from_the_banner(page: Page, scene: Scene) -> None:
    page.goto(f"{scene.url}/ui/runs/demo")
    page.click("#banner-link")
    page.wait_for_url("**/ui/incidents/01INCIDENT")

    heatmap_shown(page, "incident-heatmap")
    text = page.inner_text("#page")
    for part in ("Ruled out", "What would change the verdict", "Timeline", "incident.opened", "Drain node-0009"):
        assert part in text
    picture(page, "incident")
    page.click("#back-link")
    page.wait_for_url("**/ui/runs/demo")


def test_the_theme_can_be_switched_by_keyboard(page: Page, scene: Scene) -> None:
    page.goto(f"{scene.url}/ui/")
    page.wait_for_selector("table")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.focus("#theme-toggle")
    page.keyboard.press("Enter")

    page.wait_for_selector("html[data-theme=dark]")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_an_unknown_run_says_so(page: Page, scene: Scene) -> None:
    page.goto(f"{scene.url}/ui/runs/nope")

    page.wait_for_selector("h1:has-text('There is no run')")
    assert re.search(r"nope", page.inner_text("#page"))


def test_the_server_ends_in_order_while_a_page_is_open(browser: Browser, scene: Scene, server: Server) -> None:
    page = browser.new_page()
    page.goto(f"{scene.url}/ui/")
    page.wait_for_selector("#link-state.good")
    process = server.processes.pop("dashboard")

    process.terminate()

    assert process.wait(30) == 0
    page.close()
