"""A whole server (store, collector, analytics, dashboard) on free ports, each part a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

REPOSITORY = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Poll until `condition` holds; a test that waits in vain says for what."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError(f"waited {timeout_s:.0f} s in vain for {what}")


class Server:
    """The four processes, startable and killable one by one."""

    def __init__(self, folder: Path, webhook_url: str = "", webhook_secret: str = "") -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        store, collector, dashboard = free_port(), free_port(), free_port()
        self.collector = f"127.0.0.1:{collector}"
        self.store_url = f"http://127.0.0.1:{store}"
        self.dashboard_url = f"http://127.0.0.1:{dashboard}"
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("FLIGHTWATCH")},
            "FLIGHTWATCH_DATA": str(folder / "data"),
            "FLIGHTWATCH_DIR": str(folder / "node"),
            "FLIGHTWATCH_STORE_URL": self.store_url,
            "FLIGHTWATCH_COLLECTOR": self.collector,
            "FLIGHTWATCH_DASHBOARD": f"127.0.0.1:{dashboard}",
        }
        if webhook_url:
            secret_file = folder / "webhook-secret"
            secret_file.write_text(webhook_secret)
            self.environment["FLIGHTWATCH_WEBHOOK_URL"] = webhook_url
            self.environment["FLIGHTWATCH_WEBHOOK_SECRET_FILE"] = str(secret_file)
        self._listen = {
            "store": ["--listen", f"127.0.0.1:{store}"],
            "collector": ["--listen", self.collector],
            "dashboard": ["--listen", f"127.0.0.1:{dashboard}"],
            "analytics": [],
        }

    @property
    def records_url(self) -> str:
        return f"sqlite:///{self.folder / 'data' / 'records.sqlite'}"

    def verb(self, *arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Run one verb to its end against this server."""
        return subprocess.run(
            [sys.executable, "-m", "flightwatch", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(self, name: str) -> None:
        """Start one part and wait until it is ready."""
        log = open(self.folder / f"{name}.log", "ab")  # noqa: SIM115  # the child keeps it
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "flightwatch", name, *self._listen[name]],
            env=self.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        wait_for(lambda: self._is_ready(name), 60, f"{name} to be ready; its log: {self.folder / f'{name}.log'}")

    def start_all(self) -> None:
        self.start("store")
        migrated = self.verb("migrate")
        assert migrated.returncode == 0, migrated.stderr
        for name in ("collector", "analytics", "dashboard"):
            self.start(name)

    def kill(self, name: str) -> None:
        """SIGKILL one part, as a machine would."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
        self.processes.clear()

    def _is_ready(self, name: str) -> bool:
        process = self.processes[name]
        assert process.poll() is None, (
            f"{name} ended with {process.returncode}: {(self.folder / f'{name}.log').read_text()[-2000:]}"
        )
        if name == "store":
            return _answers(f"{self.store_url}/ping")
        if name == "dashboard":
            return _answers(f"{self.dashboard_url}/healthz")
        if name == "collector":
            return _is_serving(self.collector)
        return True


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _is_serving(target: str) -> bool:
    with grpc.insecure_channel(target) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
