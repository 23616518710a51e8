"""Two ranks that talk in every way torch knows: each op is issued and ends, whoever issued it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.ring_reader import Ring, read_all

pytest.importorskip("torch")

JOB = str(Path(__file__).parent / "jobs" / "talk.py")
WORLD = ("default_pg", (0, 1))
# name, bytes, dtype; a collective's bytes are the larger of its sides, or of the side that all ranks have
COLLECTIVES = [
    ("allreduce", 16, "float32"),
    ("allreduce", 16, "float32"),
    ("broadcast", 16, "float32"),
    ("allgather", 32, "float32"),
    ("reduce_scatter", 32, "float32"),
    ("reduce_scatter_base", 16, "float32"),
    ("gather", 16, "float32"),
    ("scatter", 16, "float32"),
    ("barrier", 0, ""),
    ("allreduce", 32, "float32"),
]
FUNCTIONAL = [("allreduce", 16, "float32"), ("reduce_scatter_tensor_coalesced", 16, "float32")]
DTENSOR = [("scatter", 16, "float32"), ("allgather_into_tensor_coalesced", 32, "float32")]
DDP_GRADIENTS = ("allreduce", 48, "float32")


def talk(mode: str, directory: Path) -> list[tuple[int, str]]:
    """Run both ranks under the agent and return what each exited with and said."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTWATCH", "TORCHELASTIC", "PYTEST"))}
    told = {"FLIGHTWATCH": "1", "FLIGHTWATCH_DIR": str(directory), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", JOB, mode]
    with open(directory / "forwarder.lock", "w") as lock:  # held, so that no forwarder is started
        fcntl.lockf(lock, fcntl.LOCK_EX)
        ranks = [
            subprocess.Popen(
                command,
                env={**kept, **told, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]
        said = [process.communicate(timeout=60)[0] for process in ranks]
    return [(process.returncode, text) for process, text in zip(ranks, said, strict=True)]


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> list[Ring]:
    directory = tmp_path_factory.mktemp("talk")
    assert talk("everything", directory) == [(0, ""), (0, "")]
    assert not (directory / "agent.log").exists()
    return read_all(directory)


def lane(ring: Ring, kind: str, group: str, members: tuple[int, ...]) -> list[dict[str, Any]]:
    records = [r for r in ring.kind(kind) if (r["group"], tuple(r["members"])) == (group, members)]
    return [r for r in records if r["name"] not in ("send", "recv")]


def test_every_issue_has_one_end_with_its_number(rings: list[Ring]) -> None:
    for ring in rings:
        issued, ended = (
            sorted((r["name"], r["group"], tuple(r["members"]), r["seq"]) for r in ring.kind(kind))
            for kind in ("issue", "collective")
        )
        assert issued == ended
        assert len(issued) == len(set(issued))
        assert all(r["value"] > 0 and r["backend"] == "gloo" for r in ring.kind("collective"))


def test_collectives_of_every_origin_are_issued_in_order_with_bytes_and_dtype(rings: list[Ring]) -> None:
    for ring in rings:
        issued = lane(ring, "issue", *WORLD)
        told = [(r["name"], r["value"], r["dtype"]) for r in issued]
        assert told[:14] == COLLECTIVES + FUNCTIONAL + DTENSOR
        assert told[-1] == DDP_GRADIENTS
        assert [r["seq"] for r in issued] == list(range(len(issued)))


def test_a_group_has_its_own_numbers_and_its_members_ascend(rings: list[Ring]) -> None:
    for rank, ring in enumerate(rings):
        others = [r for r in ring.kind("issue") if r["group"] != "default_pg"]
        assert [(r["group"], r["members"], r["seq"]) for r in others if r["members"] == [0, 1]] == [("1", [0, 1], 0)]
        # the second round gave the names of the first to other members
        alone = [(r["group"], r["members"], r["seq"]) for r in others if r["members"] != [0, 1]]
        first, second = (("2", [0]), ("3", [0])) if rank == 0 else (("3", [1]), ("2", [1]))
        assert alone == [(*first, 0), (*second, 0)]


def test_point_to_point_names_sender_then_receiver_and_counts_by_that_pair(rings: list[Ring]) -> None:
    expected = [("send", [0, 1], 0), ("send", [0, 1], 1), ("recv", [1, 0], 0)]
    mirrored = [("recv", [0, 1], 0), ("send", [1, 0], 0), ("recv", [0, 1], 1)]
    for ring, told in zip(rings, (expected, mirrored), strict=True):
        issued = [r for r in ring.kind("issue") if r["name"] in ("send", "recv")]
        assert sorted((r["name"], r["members"], r["seq"]) for r in issued) == sorted(told)
        assert {(r["value"], r["dtype"]) for r in issued} == {(16, "float32")}


def test_an_exit_with_collectives_on_their_way_is_a_clean_exit(tmp_path: Path) -> None:
    assert talk("leave", tmp_path) == [(0, ""), (0, "")]
