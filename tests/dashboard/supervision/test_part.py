from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from dashboard.supervision.part import LOG_BYTES_KEPT, Part, PartPlan
from server_fixture import wait_for

SUPERVISOR = """
import subprocess, sys
from dashboard.supervision.part import leashed
child = subprocess.Popen(leashed([sys.executable, "-c", "import time; time.sleep(600)"]), start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def command_of(pid: int) -> bytes:
    """What runs as a process; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def test_a_part_dies_with_a_supervisor_that_is_killed_outright() -> None:
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    pid = int(supervisor.stdout.readline())
    wait_for(lambda: b"time.sleep" in command_of(pid) and b"leash" not in command_of(pid), 60, "the part to run")

    supervisor.kill()
    supervisor.wait()

    wait_for(lambda: not command_of(pid), 60, "the part to die")
    supervisor.stdout.close()


def test_a_leash_whose_supervisor_is_already_gone_starts_nothing(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    program = [sys.executable, "-c", f"open({str(touched)!r}, 'w')"]

    done = subprocess.run([sys.executable, "-m", "dashboard.supervision.leash", "1", *program], timeout=60, check=False)

    assert done.returncode == 0
    assert not touched.exists()


def test_last_words_are_the_last_line_that_says_something(tmp_path: Path) -> None:
    part = Part(PartPlan("store", (), lambda: True), {}, tmp_path)
    part.log_path.write_text("first\nflightwatch: port 1 is in use\n\n")

    assert part.last_words() == "port 1 is in use"


def test_last_words_of_a_part_that_never_spoke_are_empty(tmp_path: Path) -> None:
    assert Part(PartPlan("store", (), lambda: True), {}, tmp_path).last_words() == ""


def test_a_log_that_has_grown_big_is_set_aside_at_the_next_start(tmp_path: Path) -> None:
    part = Part(PartPlan("version", ("version",), lambda: True), {}, tmp_path)
    part.log_path.write_bytes(b"x" * (LOG_BYTES_KEPT + 1))

    part.start()

    assert part.wait_or_kill(60.0)
    assert (tmp_path / "version.log.1").stat().st_size == LOG_BYTES_KEPT + 1
    assert part.log_path.stat().st_size < 100


def test_a_part_that_ends_when_asked_is_not_called_killed(tmp_path: Path) -> None:
    part = Part(PartPlan("version", ("version",), lambda: True), {}, tmp_path)
    part.start()

    part.ask_to_stop()

    assert part.wait_or_kill(60.0)
    assert part.exit_code in (0, -signal.SIGTERM)
