"""`flightwatch run` around real jobs: everything is recorded, and nothing else is different."""

from __future__ import annotations

import fcntl
import functools
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.agent.jobs.job import STEPS
from tests.agent.ring_reader import read_all

pytest.importorskip("torch")

JOB = str(Path(__file__).parent / "jobs" / "job.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
CLOSED_PORT = "127.0.0.1:9"  # discard: nobody listens
BLOCKS = ("wte", "h.0", "h.1", "h.2", "head")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: tuple[str, ...]
    err: tuple[str, ...]


def start(command: list[str], environ: dict[str, str], limit: Callable[[], None] | None = None) -> Outcome:
    done = subprocess.run(
        command, capture_output=True, text=True, env=environ, timeout=240, check=False, preexec_fn=limit
    )
    # ranks share a pipe, in no order; what torchrun itself says holds dates and process ids
    err = [
        re.sub(r"0x[0-9a-f]+|pid[:=]? ?\d+", "", line)
        for line in done.stderr.splitlines()
        if "flightwatch:" not in line
    ]
    return Outcome(done.returncode, tuple(sorted(done.stdout.splitlines())), tuple(err))


def environment(directory: Path | str, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTWATCH", "TORCHELASTIC", "PYTEST"))}
    told = {"FLIGHTWATCH_DIR": str(directory), "FLIGHTWATCH_COLLECTOR": CLOSED_PORT, "OMP_NUM_THREADS": "1"}
    return {**kept, **told, "FLIGHTWATCH_RUN_ID": "test-run", **more}


def watched(command: list[str], directory: Path | str, limit: Callable[[], None] | None = None, **more: str) -> Outcome:
    run = [sys.executable, "-m", "flightwatch", "run", "--", *command]
    return start(run, environment(directory, **more), limit)


@functools.lru_cache
def unwatched(mode: str) -> Outcome:
    return start([sys.executable, JOB, mode], environment("/nonexistent"))


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Path]:
    """A node's directory whose forwarder's lock is taken, so that none is started and the rings stay as they are."""
    with open(tmp_path / "forwarder.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        yield tmp_path


@dataclass(frozen=True)
class TwoRanks:
    outcome: Outcome
    directory: Path


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> TwoRanks:
    directory = tmp_path_factory.mktemp("two-ranks")
    with open(directory / "forwarder.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        return TwoRanks(watched([*TORCHRUN, JOB, "groups"], directory), directory)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Path]:
    """A node's directory; a forwarder that was started for it ends with the test."""
    yield tmp_path
    pid = (tmp_path / "forwarder.lock").read_text().strip()
    os.kill(int(pid), signal.SIGKILL)


def test_two_ranks_are_recorded_to_the_record(two_ranks: TwoRanks) -> None:
    rings = read_all(two_ranks.directory)

    assert two_ranks.outcome.code == 0
    assert [ring.identity["rank"] for ring in rings] == [0, 1]
    for ring in rings:
        counts = ring.counts()
        for kind in ("forward", "backward"):
            assert {name: counts[kind, name] for name in BLOCKS} == dict.fromkeys(BLOCKS, STEPS)
        for kind, name in (("optimizer", "AdamW"), ("loader", "DataLoader"), ("step", "step")):
            assert counts[kind, name] == STEPS
        assert [r["step"] for r in ring.kind("step")] == list(range(STEPS))
        assert ring.records_written == len(ring.records)
        assert [r["number"] for r in ring.records] == list(range(ring.records_written))
        assert ring.identity["run"] == "test-run"
        assert ring.identity["coordinates"] == {"dp": ring.identity["rank"]}
        assert (ring.identity["world_size"], ring.identity["sources"]["rank"]) == (2, "RANK")
    assert not (two_ranks.directory / "agent.log").exists()


def test_every_collective_is_issued_and_ends_with_one_number_on_both_ranks(two_ranks: TwoRanks) -> None:
    rings = read_all(two_ranks.directory)

    for ring in rings:
        issued = [(r["name"], r["group"], tuple(r["members"]), r["seq"]) for r in ring.kind("issue")]
        ended = [(r["name"], r["group"], tuple(r["members"]), r["seq"]) for r in ring.kind("collective")]
        assert sorted(issued) == sorted(ended)
        assert all(r["value"] > 0 for r in ring.kind("collective"))
    names = [[r["name"] for r in ring.kind("issue") if r["name"] not in ("send", "recv")] for ring in rings]
    assert names[0] == names[1]
    # DDP's: one bucket's all-reduce a step, and one that tells the rebuilt buckets' sizes; 2 of the script's own
    assert sorted(set(names[0])) == ["allgather", "allreduce", "barrier", "broadcast", "monitored_barrier"]
    on_pair = [r for r in rings[0].kind("issue") if r["name"] == "allreduce" and r["group"] not in ("default_pg", "0")]
    assert [(r["seq"], r["value"], r["dtype"], r["members"]) for r in on_pair] == [
        (0, 1024, "float32", [0, 1]),
        (1, 1024, "float32", [0, 1]),
    ]
    gradients = sum(p.numel() for p in _parameters()) * 4
    reduced = [r["step"] for r in rings[0].kind("issue") if r["name"] == "allreduce" and r["value"] == gradients]
    assert reduced == list(range(STEPS))
    assert [(r["members"], r["seq"]) for r in rings[0].kind("collective") if r["name"] == "send"] == [
        ([0, 1], 0),
        ([0, 1], 1),
    ]
    assert [(r["members"], r["seq"]) for r in rings[1].kind("collective") if r["name"] == "recv"] == [
        ([0, 1], 0),
        ([0, 1], 1),
    ]


def _parameters() -> list[Any]:
    from tests.agent.jobs.job import Model

    return list(Model().parameters())


def test_output_of_two_ranks_is_the_same(two_ranks: TwoRanks) -> None:
    plain = start([*TORCHRUN, JOB, "groups"], environment("/nonexistent", FLIGHTWATCH="0"))

    assert (plain.code, plain.out) == (0, two_ranks.outcome.out)


@pytest.mark.parametrize("mode", ["end", "raise", "exit3", "fork"])
def test_output_exit_code_and_exception_are_the_same(mode: str, lone: Path) -> None:
    outcome = watched([sys.executable, JOB, mode], lone)

    assert outcome == unwatched(mode)
    assert outcome.code == {"end": 0, "raise": 1, "exit3": 3, "fork": 0}[mode]
    (ring,) = read_all(lone)
    assert len(ring.kind("step")) == (STEPS + 5 if mode == "fork" else STEPS)
    assert ring.records_written == len(ring.records)


def test_output_is_the_same_with_a_forwarder_that_finds_no_collector(node: Path) -> None:
    outcome = watched([sys.executable, JOB, "end"], node)

    assert outcome == unwatched("end")
    deadline = time.monotonic() + 30
    while not (node / "forwarder.lock").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (node / "forwarder.lock").exists()


def test_output_is_the_same_where_the_directory_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert watched([sys.executable, JOB, "end"], tmp_path / "file" / "below") == unwatched("end")
    assert watched([sys.executable, JOB, "end"], "/proc/flightwatch") == unwatched("end")


def test_output_is_the_same_where_there_is_no_room_for_a_ring(lone: Path) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    outcome = watched([sys.executable, JOB, "end"], lone, no_room)

    assert outcome == unwatched("end")
    assert os.listdir(lone / "rings") == []
    assert "File too large" in (lone / "agent.log").read_text()


def test_output_is_the_same_on_a_full_file_system(tmp_path: Path) -> None:
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "x", tmp_path], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        outcome = watched([sys.executable, JOB, "end"], tmp_path, FLIGHTWATCH="1")
        log = (tmp_path / "agent.log").read_text()
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)

    assert outcome == unwatched("end")
    assert "No space left on device" in log


def test_200_forked_children_open_grpc_channels_of_their_own(lone: Path) -> None:
    echo = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"Echo": echo}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    outcome = watched([sys.executable, JOB, "grpc", f"127.0.0.1:{port}"], lone)

    server.stop(0)
    (ring,) = read_all(lone)
    assert "0 of 200 failed" in outcome.out
    assert len(ring.kind("step")) == STEPS + 20
    assert [r["number"] for r in ring.records] == list(range(ring.records_written))


def test_a_command_that_cannot_be_started_is_one_line_and_exit_code_2(lone: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flightwatch", "run", "--", "no-such-command"],
        capture_output=True,
        text=True,
        env=environment(lone),
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "flightwatch: cannot run 'no-such-command': No such file or directory"


def test_the_command_keeps_its_arguments_and_gets_a_run_id(lone: Path) -> None:
    show = "import os, sys; print(sys.argv[1:], os.environ['FLIGHTWATCH'], bool(os.environ['FLIGHTWATCH_RUN_ID']))"
    environ = environment(lone)
    del environ["FLIGHTWATCH_RUN_ID"]
    command = [sys.executable, "-m", "flightwatch", "run", sys.executable, "-c", show, "--run-id", "--", "-x"]

    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)

    assert done.stdout == "['--run-id', '--', '-x'] 1 True\n"
    assert re.fullmatch(r"flightwatch: watching run run-[0-9a-f]{8}\n", done.stderr)


def test_a_signal_reaches_the_command_itself(lone: Path) -> None:
    command = [sys.executable, "-m", "flightwatch", "run", "--", sys.executable, "-c", "print(1, flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(lone)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)

        assert process.wait(30) == -signal.SIGTERM
