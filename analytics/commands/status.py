"""`flightwatch status`: whether the server's parts answer, and how old the data of running jobs is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

import grpc
import httpx2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from sqlalchemy import func, make_url, select
from sqlalchemy.orm import Session

from analytics.commands.open_records import open_records
from analytics.commands.text_table import age_text, text_table
from collector.settings import Settings
from collector.store.records import Delivery, Incident, Run
from collector.store.records.delivery import DEAD, PENDING
from collector.store.records.incident import FIRING
from collector.store.records.run import RUNNING
from collector.store.telemetry.client import connect
from flightwatch.errors import FlightwatchError

HELP = "say whether every part answers and how old the data is"
ANSWER_SECONDS = 3.0
# Forwarders ship every live rank's cells about once a second; half a minute without any is silence, not delay.
STALE_SECONDS = 30.0
OVERDUE_SECONDS = 120.0  # a delivery this long past its time has no worker: analytics is down


@dataclass(frozen=True, slots=True)
class Check:
    """One part and how it is; `text` says where it was asked and what it answered."""

    part: str
    is_ok: bool
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--stale",
        type=float,
        default=STALE_SECONDS,
        metavar="SECONDS",
        help="a running job not heard of for this long is stale (default: %(default)s)",
    )
    parser.epilog = "Exit codes: 0 all is well, 1 a part is down or a running job's data is stale, 2 bad input."


def run(args: argparse.Namespace) -> int:
    """Print the state of every part; 1 if one is down or stale."""
    settings = Settings.from_environment()
    checks = list(_checks(settings, stale_seconds=args.stale, now=datetime.now(UTC)))
    is_ok = all(check.is_ok for check in checks)
    if args.json:
        print(json.dumps({"ok": is_ok, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        rows = [(check.part, "ok" if check.is_ok else "PROBLEM", check.text) for check in checks]
        print(text_table(("PART", "STATE", ""), rows))
    return int(not is_ok)


def _checks(settings: Settings, *, stale_seconds: float, now: datetime) -> Iterator[Check]:
    yield _probed("telemetry store", settings.store_url, lambda: _probe_telemetry(settings.store_url))
    yield _probed("collector", settings.collector, lambda: probe_collector(settings.collector))
    yield _probed("dashboard", settings.dashboard, lambda: probe_dashboard(settings.dashboard))
    try:
        with open_records(settings) as session:
            yield Check("records store", True, make_url(settings.records_url).render_as_string(hide_password=True))
            yield _outbox(session, now)
            yield from _runs(session, now, stale_seconds)
    except FlightwatchError as error:
        yield Check("records store", False, str(error))


def _probed(part: str, where: str, probe: Callable[[], str]) -> Check:
    try:
        return Check(part, True, f"{where}: {probe()}")
    except FlightwatchError as error:
        return Check(part, False, str(error))


def _probe_telemetry(url: str) -> str:
    client = connect(url)
    try:
        client.check_schema()
        return f"schema {client.schema_version()}"
    finally:
        client.close()


def probe_collector(address: str) -> str:
    """Return what the collector's gRPC health service says.

    Raises:
        FlightwatchError: it does not answer, or is not serving.
    """
    with grpc.insecure_channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=""), timeout=ANSWER_SECONDS
            )
        except grpc.RpcError as error:
            code = error.code().name if isinstance(error, grpc.Call) else "UNKNOWN"
            raise FlightwatchError(
                f"{address} does not answer ({code}); start `flightwatch collector`, or set FLIGHTWATCH_COLLECTOR"
            ) from error
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise FlightwatchError(f"{address} says {status}")
    return str(status).lower()


def probe_dashboard(address: str) -> str:
    """Return what the dashboard's /healthz says.

    Raises:
        FlightwatchError: it does not answer with success.
    """
    url = f"http://{address}/healthz"
    try:
        # not through a proxy: the dashboard is asked where it listens
        response = httpx2.get(url, timeout=ANSWER_SECONDS, trust_env=False)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise FlightwatchError(
            f"{url} does not answer ({type(error).__name__}); "
            "start `flightwatch dashboard`, or set FLIGHTWATCH_DASHBOARD"
        ) from error
    if not response.is_success:
        raise FlightwatchError(f"{url} says HTTP {response.status_code}")
    return "serving"


def _outbox(session: Session, now: datetime) -> Check:
    overdue = now - timedelta(seconds=OVERDUE_SECONDS)
    pending, late = session.execute(
        select(func.count(), func.count().filter(Delivery.next_attempt_at < overdue)).where(Delivery.state == PENDING)
    ).one()
    dead = session.scalar(select(func.count()).select_from(Delivery).where(Delivery.state == DEAD))
    text = f"{pending} deliveries waiting, {late} overdue, {dead} given up"
    return Check("outbox", not late, text + ("; is `flightwatch analytics` running?" if late else ""))


def _runs(session: Session, now: datetime, stale_seconds: float) -> Iterator[Check]:
    firing = (
        select(func.count())
        .select_from(Incident)
        .where(Incident.run_id == Run.id, Incident.state == FIRING)
        .scalar_subquery()
    )
    runs = session.execute(select(Run, firing).where(Run.state == RUNNING).order_by(Run.started_at)).all()
    for job, incidents in runs:
        is_fresh = (now - job.last_seen_at).total_seconds() <= stale_seconds
        text = f"step {job.last_step}, heard {age_text(job.last_seen_at, now)} ago, {incidents} incidents firing"
        yield Check(f"run {job.id}", is_fresh, text if is_fresh else f"{text}: stale")
