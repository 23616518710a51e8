from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.supervision.addresses import Addresses
from server_fixture import wait_for


def environment(tmp_path: Path, addresses: Addresses) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FLIGHTWATCH")}
    return {**inherited, **addresses.environment(), "FLIGHTWATCH_DATA": str(tmp_path / "data")}


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class Up:
    """A running `flightwatch up --json`."""

    def __init__(self, tmp_path: Path) -> None:
        self.addresses = Addresses.on_free_ports()
        self.errors = tmp_path / "up.stderr"
        with self.errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flightwatch", "up", "--json"],
                env=environment(tmp_path, self.addresses),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        self.ready = json.loads(line)
        self.pids: dict[str, int] = self.ready["pids"]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path)
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()
    wait_for(lambda: not any(map(is_alive, running.pids.values())), 60, "the parts to die with their supervisor")


def test_a_port_in_use_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        addresses = Addresses("127.0.0.1:1024", "127.0.0.1:1025", f"127.0.0.1:{taken.getsockname()[1]}")

        done = subprocess.run(
            [sys.executable, "-m", "flightwatch", "up"],
            env=environment(tmp_path, addresses),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert (
        f"port {addresses.dashboard.rpartition(':')[2]} on 127.0.0.1, wanted by the dashboard, is in use" in done.stderr
    )
    assert not (tmp_path / "data").exists()


def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")

    done = subprocess.run(
        [sys.executable, "-m", "flightwatch", "up"],
        env=environment(tmp_path, Addresses.on_free_ports()),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert f"data directory {tmp_path / 'data'} cannot be made" in done.stderr


def test_server_comes_up_restarts_a_killed_part_and_leaves_nothing_behind(up: Up) -> None:
    with urllib.request.urlopen(f"{up.ready['dashboard']}/healthz", timeout=10) as answer:
        assert answer.status == 200

    os.kill(up.pids["collector"], signal.SIGKILL)
    wait_for(lambda: "collector started again" in up.errors.read_text(), 60, "the collector to be started again")
    told = up.errors.read_text()
    assert "collector ended (killed by signal 9)" in told
    second = int(told.rpartition("collector started again, process ")[2].split()[0])
    assert second != up.pids["collector"]

    assert up.end() == 0
    assert [name for name, pid in {**up.pids, "collector": second}.items() if is_alive(pid)] == []
    for address in up.addresses.by_part().values():
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) != 0
