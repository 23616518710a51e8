"""The demo's pages in a real browser: the verdict comes to an open page by itself, and leads to its incident."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo_process import RANKS, DemoProcess

chromium = pytest.importorskip("chromium", reason="needs playwright")

pytestmark = [*chromium.MARKS, pytest.mark.timeout(600)]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[DemoProcess]:
    running = DemoProcess(tmp_path, "--ranks", str(RANKS), "--step-seconds", "0.5", "--rhythm", "60:400:60", "--json")
    yield running
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(60)


def test_an_open_page_learns_of_the_slow_node_by_itself(demo: DemoProcess) -> None:
    live = demo.wait_for("live", 180)
    with chromium.launched() as browser:
        page = browser.new_page(viewport={"width": 1560, "height": 1000})
        page.set_default_timeout(chromium.SLOW_MACHINE_MS)
        page.goto(live["url"])
        page.wait_for_selector("#run-heatmap .hm image", state="attached")
        page.evaluate("window.stillTheSamePage = true")

        injected = demo.wait_for("injected", 120)
        page.wait_for_selector(f".banner:has-text('{injected['node']}')", timeout=150_000)
        assert page.evaluate("window.stillTheSamePage") is True
        labels = page.locator("#run-heatmap .ytick text").all_text_contents()
        assert len([label for label in labels if label.startswith("▶") and injected["node"] in label]) == 8

        page.click("#banner-link")
        page.wait_for_url("**/ui/incidents/*")
        page.wait_for_selector("#incident-heatmap .hm image", state="attached")
        assert injected["node"] in page.inner_text("h1")
        if folder := os.environ.get("FLIGHTWATCH_PICTURES"):
            page.screenshot(path=Path(folder) / "demo-incident.png", full_page=True)
