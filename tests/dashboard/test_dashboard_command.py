from __future__ import annotations

import socket

import pytest

from collector.errors import PortInUseError, StoreUnreachableError
from dashboard.commands.dashboard import open_listener, parse_address, wait_for
from flightwatch.errors import FlightwatchError


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:8460", ("127.0.0.1", 8460)), ("[::1]:80", ("::1", 80)), (":8460", ("127.0.0.1", 8460))],
)
def test_addresses_are_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["8460", "host:", "host:x", "host:70000"])
def test_a_bad_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(FlightwatchError, match=text):
        parse_address(text)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)):
            open_listener("127.0.0.1", port)


def test_waiting_for_a_store_ends() -> None:
    now = [0.0]
    asked = []

    def away() -> None:
        asked.append(now[0])
        raise StoreUnreachableError("not there")

    with pytest.raises(StoreUnreachableError):
        wait_for(away, limit_seconds=3, clock=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))

    assert asked[-1] == 3.0


def test_a_store_that_comes_late_is_waited_for() -> None:
    answers = iter([StoreUnreachableError("not yet"), None])

    def late() -> None:
        answer = next(answers)
        if answer is not None:
            raise answer

    wait_for(late, clock=lambda: 0.0, sleep=lambda _s: None)

    assert next(answers, "used up") == "used up"
