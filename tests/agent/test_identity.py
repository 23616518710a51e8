from __future__ import annotations

import pytest

from flightwatch._identity import find_run_id, identify

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "job-7",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NAME": "pretrain",
    "SLURM_PROCID": "9",
    "SLURM_NTASKS": "16",
    "SLURM_LOCALID": "3",
    "SLURMD_NODENAME": "n012",
    "SLURM_RESTART_COUNT": "1",
}
KUBERNETES = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "POD_NAME": "pretrain-3-x7k2q",
    "NODE_NAME": "worker-3",
    "JOB_COMPLETION_INDEX": "3",
}
MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TORCHRUN, ("job-7", 2, 5, 8, 1, "host")),
        (SLURM, ("4711", 1, 9, 16, 3, "n012")),
        (KUBERNETES, ("pretrain", 0, 3, 4, 0, "worker-3")),
        (MPI, ("run", 0, 2, 4, 0, "host")),
        (SLURM | TORCHRUN, ("job-7", 2, 5, 8, 1, "n012")),
        ({}, ("run", 0, 0, 1, 0, "host")),
    ],
)
def test_a_launchers_variables_tell_who_a_process_is(environ: dict[str, str], expected: tuple[object, ...]) -> None:
    who = identify(environ, host="host")

    assert (who.run, who.attempt, who.rank, who.world_size, who.local_rank, who.node) == expected


def test_overrides_win_over_every_launcher() -> None:
    told = {
        "FLIGHTWATCH_RUN_ID": "mine",
        "FLIGHTWATCH_ATTEMPT": "4",
        "FLIGHTWATCH_NODE": "fake-1",
        "FLIGHTWATCH_RANK": "70",
        "FLIGHTWATCH_WORLD_SIZE": "100",
        "FLIGHTWATCH_PP_RANK": "1",
        "FLIGHTWATCH_TP_RANK": "0",
    }

    who = identify({**SLURM, **TORCHRUN, **told}, host="host")

    assert (who.run, who.attempt, who.rank, who.world_size, who.node) == ("mine", 4, 70, 100, "fake-1")
    assert who.coordinates == {"pp": 1, "tp": 0}


def test_each_value_says_where_it_was_found() -> None:
    who = identify({**SLURM, "RANK": "1", "FLIGHTWATCH_DP_RANK": "2"}, host="host")

    assert who.sources["rank"] == "RANK"
    assert who.sources["local_rank"] == "SLURM_LOCALID"
    assert who.sources["run"] == "SLURM_JOB_ID"
    assert who.sources["dp"] == "FLIGHTWATCH_DP_RANK"
    assert "tp" not in who.sources
    assert identify({}, host="host").sources["rank"] == "default"


def test_the_run_id_that_torchrun_makes_up_is_none_of_ours() -> None:
    assert find_run_id({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "1"}) == ("1", "SLURM_JOB_ID")


def test_ranks_of_one_rendezvous_meet_in_one_run_where_nothing_tells_its_id() -> None:
    there = {"MASTER_ADDR": "a", "MASTER_PORT": "29500"}

    runs = {identify({**there, "RANK": str(rank)}, host=f"h{rank}").run for rank in range(4)}

    assert runs == {"run-a-29500"}


@pytest.mark.parametrize("garbage", ["", "-1", "two", "1.5", "0x3", "9" * 3])
def test_garbage_in_a_variable_never_raises(garbage: str) -> None:
    who = identify({"RANK": garbage, "WORLD_SIZE": "8"}, host="host")

    assert who.rank in (0, 999)


def test_a_rank_that_the_process_group_knows_fills_in_only_what_nothing_told() -> None:
    alone, told = identify({}, host="host"), identify(TORCHRUN, host="host")

    assert alone.seen_by("torch.distributed", rank=3, world_size=4).rank == 3
    assert alone.seen_by("torch.distributed", rank=3, world_size=4).sources["rank"] == "torch.distributed"
    assert told.seen_by("torch.distributed", rank=3, world_size=4) == told


def test_coordinates_that_groups_tell_do_not_override_the_environment() -> None:
    who = identify({"FLIGHTWATCH_DP_RANK": "9"}, host="host").placed("mesh", {"dp": 1, "tp": 2})

    assert who.coordinates == {"dp": 9, "tp": 2}
    assert who.sources["tp"] == "mesh"
