"""Where the server's parts listen on one machine, and whether they can."""

from __future__ import annotations

import contextlib
import errno
import socket
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from collector.errors import PortInUseError
from collector.listening import refuse_open_address
from collector.settings import Settings
from flightwatch.errors import FlightwatchError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_PORT = 65_535


VARIABLES = {
    "store": "FLIGHTWATCH_STORE_URL",
    "collector": "FLIGHTWATCH_COLLECTOR",
    "dashboard": "FLIGHTWATCH_DASHBOARD",
}


@dataclass(frozen=True, slots=True)
class Addresses:
    """HOST:PORT of each part that listens. `store` is empty when an external ClickHouse is used."""

    store: str
    collector: str
    dashboard: str

    @classmethod
    def of(cls, settings: Settings) -> Addresses:
        """Return where the settings want the parts.

        Raises:
            FlightwatchError: an address is not HOST:PORT, or lets in whoever reaches it.
        """
        url = urlsplit(settings.store_url)
        own_store = url.hostname in LOOPBACK
        found = cls(url.netloc if own_store else "", settings.collector, settings.dashboard)
        for part, address in found.by_part().items():
            split_address(address, VARIABLES[part])
            refuse_open_address(address, allowed=settings.insecure_listen)
        return found

    @classmethod
    def from_base(cls, base: int) -> Addresses:
        """Return loopback addresses: the dashboard on port `base`, then the collector, then the store."""
        if not 1 <= base <= MAX_PORT - 2:
            raise FlightwatchError(f"--port-base {base}: ports go from 1 to {MAX_PORT}, and three are needed")
        return cls(store=f"127.0.0.1:{base + 2}", collector=f"127.0.0.1:{base + 1}", dashboard=f"127.0.0.1:{base}")

    @classmethod
    def on_free_ports(cls) -> Addresses:
        """Return loopback addresses on ports that are free now."""
        store, collector, dashboard = (f"127.0.0.1:{port}" for port in _free_ports(3))
        return cls(store, collector, dashboard)

    def by_part(self) -> dict[str, str]:
        """Return the address of each part that we start and that listens."""
        named = {"store": self.store, "collector": self.collector, "dashboard": self.dashboard}
        return {part: address for part, address in named.items() if address}

    def environment(self) -> dict[str, str]:
        """Return the variables that make every part listen and look here."""
        scheme = {"store": "http://"}
        return {VARIABLES[part]: scheme.get(part, "") + address for part, address in self.by_part().items()}

    def in_use(self) -> list[str]:
        """Return the parts whose address is taken."""
        return [part for part, address in self.by_part().items() if not is_free(address, VARIABLES[part])]

    def check_free(self) -> None:
        """Refuse to go on when a port is taken.

        Raises:
            PortInUseError: names the first one, and what changes it.
        """
        for part in self.in_use():
            host, port = split_address(self.by_part()[part], VARIABLES[part])
            example = f"http://{host}:PORT" if part == "store" else f"{host}:PORT"
            raise PortInUseError(
                f"port {port} on {host}, wanted by the {part}, is in use; nothing was started. Stop what listens "
                f"there, or set {VARIABLES[part]}={example}, or move all three with `flightwatch up --port-base N`"
            )

    def moved_off_used_ports(self) -> Addresses:
        """Return these addresses with free ports in place of those in use."""
        used = self.in_use()
        moved: dict[str, Any] = {
            part: f"127.0.0.1:{port}" for part, port in zip(used, _free_ports(len(used)), strict=True)
        }
        return replace(self, **moved)


def split_address(address: str, source: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; `source` is named when it is something else."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) <= MAX_PORT:
        raise FlightwatchError(f"{source}: {address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def is_free(address: str, source: str) -> bool:
    """Return whether a server could listen at an address now.

    Raises:
        FlightwatchError: the host is not this machine's, or the port needs rights that we lack.
    """
    host, port = split_address(address, source)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            # as servers do, so that connections of an earlier life that linger in TIME_WAIT do not count
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise FlightwatchError(f"{source}: cannot listen on {address}: {error.strerror or error}") from error
    return True


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:  # all held until all are known, so that they differ
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
