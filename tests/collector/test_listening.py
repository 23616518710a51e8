"""Nobody beyond this machine is let in by mistake."""

from __future__ import annotations

import pytest

from collector.listening import refuse_open_address
from collector.settings import Settings
from dashboard.supervision.addresses import Addresses
from flightwatch.cli import main
from flightwatch.errors import FlightwatchError

OPEN = ["0.0.0.0:7460", "[::]:7460", "192.0.2.7:7460", "node-7:7460"]


@pytest.mark.parametrize("address", OPEN)
def test_address_beyond_loopback_is_refused_in_one_line_that_names_the_flag(address: str) -> None:
    with pytest.raises(FlightwatchError) as refusal:
        refuse_open_address(address, allowed=False)

    assert address in str(refusal.value)
    assert "--insecure-listen" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("address", OPEN)
def test_address_beyond_loopback_is_taken_on_request(address: str) -> None:
    refuse_open_address(address, allowed=True)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.8.0.1:7460", "[::1]:7460", "localhost:7460"])
def test_loopback_needs_no_request(address: str) -> None:
    refuse_open_address(address, allowed=False)


@pytest.mark.parametrize("verb", ["collector", "dashboard"])
def test_verb_does_not_listen_beyond_loopback_unasked(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--listen", "0.0.0.0:0"]) == 2

    assert "there is no login yet" in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["FLIGHTWATCH_COLLECTOR", "FLIGHTWATCH_DASHBOARD"])
def test_up_starts_nothing_that_would_listen_beyond_loopback_unasked(variable: str) -> None:
    told = {variable: "0.0.0.0:7460"}
    with pytest.raises(FlightwatchError, match="there is no login yet"):
        Addresses.of(Settings.from_environment(told))

    Addresses.of(Settings.from_environment({**told, "FLIGHTWATCH_INSECURE_LISTEN": "1"}))
