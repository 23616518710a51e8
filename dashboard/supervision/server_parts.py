"""The four parts of a server on one machine, and the order in which they come up."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from collector.settings import Settings
from dashboard.supervision.addresses import Addresses
from dashboard.supervision.part import Part, PartPlan
from dashboard.supervision.readiness import answers_http, serves_grpc
from dashboard.supervision.supervisor import Supervisor

PARTS_AFTER_STORE = ("collector", "analytics", "dashboard")


def server_environment(data_dir: Path, addresses: Addresses, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of every part: `environment` with the data directory and the addresses put in."""
    return {**environment, **addresses.environment(), "FLIGHTWATCH_DATA": str(data_dir)}


class Server:
    """Store, collector, analytics and dashboard, supervised together."""

    def __init__(
        self,
        addresses: Addresses,
        data_dir: Path,
        say: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.addresses = addresses
        self.data_dir = data_dir.absolute()
        self.environment = server_environment(
            self.data_dir, addresses, os.environ if environment is None else environment
        )
        self.settings = Settings.from_environment(self.environment)
        self.log_dir = self.data_dir / "logs"
        self._say = say
        self.supervisor = Supervisor(say)

    def start(self, should_stop: Callable[[], bool]) -> None:
        """Bring everything up: the store, both schemas, then the other parts side by side.

        Raises: what `start_stores` raises.
        """
        self.start_stores(should_stop)
        self.start_parts(PARTS_AFTER_STORE, should_stop)

    def start_stores(self, should_stop: Callable[[], bool]) -> None:
        """Bring up the store and both schemas.

        Raises:
            FlightwatchError: a part did not start, or a schema is newer than this program; stop what runs by `stop`.
        """
        self.log_dir.mkdir(parents=True, exist_ok=True)
        stores = [self._part(self._store_plan())] if self.addresses.store else []
        self.supervisor.launch(stores)
        # Imported here: it takes as long as the store needs to come up, and a refused port need not wait for it.
        from collector.store.migrate import migrate_all

        self.supervisor.wait_ready(stores, should_stop)
        if should_stop():
            return
        migrate_all(self.settings)
        self._say("schema     ready")

    def start_parts(self, names: Sequence[str], should_stop: Callable[[], bool]) -> None:
        """Bring up these parts side by side.

        Raises:
            PartFailedError: one of them ended or does not answer.
        """
        if should_stop():
            return
        plans = (self._collector_plan(), self._analytics_plan(), self._dashboard_plan())
        self.supervisor.start([self._part(plan) for plan in plans if plan.name in names], should_stop)

    def stop(self) -> None:
        """Stop every part."""
        self.supervisor.stop()

    def _part(self, plan: PartPlan) -> Part:
        return Part(plan, self.environment, self.log_dir)

    def _store_plan(self) -> PartPlan:
        url = self.settings.store_url
        arguments = ("store", "--listen", self.addresses.store, "--data", str(self.data_dir))
        return PartPlan("store", arguments, lambda: answers_http(f"{url}/ping"), url)

    def _collector_plan(self) -> PartPlan:
        address = self.addresses.collector
        return PartPlan("collector", ("collector", "--listen", address), lambda: serves_grpc(address), address)

    def _dashboard_plan(self) -> PartPlan:
        address = self.addresses.dashboard
        url = f"http://{address}"
        arguments = ("dashboard", "--listen", address)
        return PartPlan("dashboard", arguments, lambda: answers_http(f"{url}/healthz"), url)

    @staticmethod
    def _analytics_plan() -> PartPlan:
        # It listens nowhere; the supervisor sees it end if it cannot run.
        return PartPlan("analytics", ("analytics",), lambda: True)
