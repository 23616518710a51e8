"""The verb status: each part is asked, each problem is told, and the exit code says whether there is one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from analytics.commands.status import probe_collector, probe_dashboard
from flightwatch.errors import FlightwatchError

NOWHERE = "127.0.0.1:9"  # the discard port: nothing listens


@pytest.fixture
def health_service() -> Iterator[tuple[str, health.HealthServicer]]:
    server = grpc.server(ThreadPoolExecutor(1))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", servicer
    server.stop(None)


@pytest.fixture
def dashboard() -> Iterator[Callable[[int], str]]:
    servers = []

    def serve(status: int) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/healthz" else 404)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_serving_collector_is_well(health_service: Any) -> None:
    address, servicer = health_service
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)

    assert probe_collector(address) == "serving"


def test_a_draining_collector_is_a_problem(health_service: Any) -> None:
    address, servicer = health_service
    servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)

    with pytest.raises(FlightwatchError, match="NOT_SERVING"):
        probe_collector(address)


def test_a_collector_that_is_not_there_is_a_problem() -> None:
    with pytest.raises(FlightwatchError, match=r"does not answer \(UNAVAILABLE\)"):
        probe_collector(NOWHERE)


def test_a_dashboard_is_asked_for_its_health(dashboard: Callable[[int], str]) -> None:
    assert probe_dashboard(dashboard(200)) == "serving"


def test_a_dashboard_that_says_no_is_a_problem(dashboard: Callable[[int], str]) -> None:
    with pytest.raises(FlightwatchError, match="HTTP 503"):
        probe_dashboard(dashboard(503))


def test_a_dashboard_that_is_not_there_is_a_problem() -> None:
    with pytest.raises(FlightwatchError, match="does not answer"):
        probe_dashboard(NOWHERE)


@pytest.fixture
def nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLLECTOR", "DASHBOARD"):
        monkeypatch.setenv(f"FLIGHTWATCH_{name}", NOWHERE)
    monkeypatch.setenv("FLIGHTWATCH_STORE_URL", f"http://{NOWHERE}")


@pytest.mark.usefixtures("nothing_listens")
def test_parts_that_are_down_are_named_and_are_exit_code_1(
    shelf: Any, flightwatch: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    code = flightwatch("status", "--json")

    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["ok"]) == (1, False)
    assert {check["part"]: check["is_ok"] for check in answer["checks"]} == {
        "telemetry store": False,
        "collector": False,
        "dashboard": False,
        "records store": True,
        "outbox": True,
    }


@pytest.mark.usefixtures("nothing_listens")
def test_the_age_of_each_running_run_is_told_and_a_stale_one_is_a_problem(
    shelf: Any, flightwatch: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    shelf.run("fresh")
    shelf.run("stale", seen_seconds_ago=240)
    shelf.run("over", state="ended", seen_seconds_ago=9999)

    flightwatch("status")

    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("run ")]
    assert [line[:3] for line in lines] == [["run", "fresh", "ok"], ["run", "stale", "PROBLEM"]]
    assert "heard 4 min ago" in " ".join(lines[1])


@pytest.mark.usefixtures("nothing_listens")
def test_overdue_deliveries_betray_that_analytics_is_down(
    shelf: Any, flightwatch: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    shelf.run("run-1")
    shelf.incident("01AAA")
    shelf.delivery("msg_1", "01AAA", next_attempt_at=shelf.now - timedelta(minutes=10))

    flightwatch("status", "--json")

    (outbox,) = [check for check in json.loads(capsys.readouterr().out)["checks"] if check["part"] == "outbox"]
    assert not outbox["is_ok"]
    assert "is `flightwatch analytics` running?" in outbox["text"]
