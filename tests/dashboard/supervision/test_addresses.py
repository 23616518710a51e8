from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from collector.errors import PortInUseError
from collector.settings import Settings
from dashboard.supervision.addresses import Addresses, is_free, split_address
from flightwatch.errors import FlightwatchError


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_settings_tell_where_each_part_listens() -> None:
    settings = Settings.from_environment({"HOME": "/nowhere", "FLIGHTWATCH_COLLECTOR": "127.0.0.1:99"})

    addresses = Addresses.of(settings)

    assert addresses == Addresses(store="127.0.0.1:8124", collector="127.0.0.1:99", dashboard="127.0.0.1:8460")


def test_a_store_elsewhere_is_not_ours_to_start() -> None:
    settings = Settings.from_environment(
        {"HOME": "/nowhere", "FLIGHTWATCH_STORE_URL": "https://clickhouse.example:8443"}
    )

    addresses = Addresses.of(settings)

    assert list(addresses.by_part()) == ["collector", "dashboard"]
    assert "FLIGHTWATCH_STORE_URL" not in addresses.environment()


def test_environment_gives_back_the_same_addresses() -> None:
    addresses = Addresses.from_base(9000)

    assert Addresses.of(Settings.from_environment({"HOME": "/nowhere", **addresses.environment()})) == addresses


def test_a_port_in_use_is_named_with_its_part_and_what_changes_it(taken_port: int) -> None:
    addresses = Addresses("127.0.0.1:1024", f"127.0.0.1:{taken_port}", "127.0.0.1:1025")

    with pytest.raises(PortInUseError) as refused:
        addresses.check_free()

    message = str(refused.value)
    assert f"port {taken_port} on 127.0.0.1, wanted by the collector, is in use" in message
    assert "FLIGHTWATCH_COLLECTOR=127.0.0.1:PORT" in message
    assert "\n" not in message


def test_only_the_parts_whose_port_is_taken_move(taken_port: int) -> None:
    addresses = Addresses("127.0.0.1:1024", "127.0.0.1:1025", f"127.0.0.1:{taken_port}")

    moved = addresses.moved_off_used_ports()

    assert (moved.store, moved.collector) == (addresses.store, addresses.collector)
    assert moved.in_use() == []
    assert is_free(moved.dashboard, "FLIGHTWATCH_DASHBOARD")


def test_free_ports_differ() -> None:
    addresses = Addresses.on_free_ports()

    assert len(set(addresses.by_part().values())) == 3


@pytest.mark.parametrize("address", ["8460", "127.0.0.1", "127.0.0.1:", ":8460", "127.0.0.1:http", "127.0.0.1:70000"])
def test_what_is_not_host_and_port_is_refused_by_the_name_of_its_source(address: str) -> None:
    with pytest.raises(FlightwatchError, match=r"FLIGHTWATCH_DASHBOARD: .* is not HOST:PORT"):
        split_address(address, "FLIGHTWATCH_DASHBOARD")


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(FlightwatchError, match=r"cannot listen on 192\.0\.2\.1:8460"):
        is_free("192.0.2.1:8460", "FLIGHTWATCH_DASHBOARD")


@pytest.mark.parametrize("base", [0, -5, 65_534])
def test_a_port_base_without_room_for_three_is_refused(base: int) -> None:
    with pytest.raises(FlightwatchError, match="--port-base"):
        Addresses.from_base(base)
