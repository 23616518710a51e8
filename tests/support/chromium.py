"""A real Chromium for the tests of pages: Debian's, never a downloaded one. Importing it needs Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

EXECUTABLE = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SLOW_MACHINE_MS = 60_000
MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(EXECUTABLE is None, reason="needs chromium (Debian: apt install chromium)"),
]


@contextmanager
def launched() -> Iterator[Browser]:
    """Give a browser, and close it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=FLAGS)
        yield browser
        browser.close()
