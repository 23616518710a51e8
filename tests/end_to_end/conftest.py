"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from server_fixture import Server
from webhook_receiver import SECRET, Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A webhook receiver that verifies signatures."""
    found = Receiver()
    found.start()
    yield found
    found.stop()


@pytest.fixture
def server(tmp_path: Path, receiver: Receiver) -> Iterator[Server]:
    """A whole server with the receiver as its webhook channel."""
    found = Server(tmp_path, receiver.url, SECRET)
    try:
        found.start_all()
        yield found
    finally:
        found.stop()
