"""Who am I: run, rank, node and place in the job, from the environment alone, each with the variable it came from.

Order of sources: FLIGHTWATCH_* overrides, torchrun, MPI, Slurm, LSF, Kubernetes (reference: each launcher's own
documentation).
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

DIMENSIONS = ("dp", "pp", "tp", "ep", "cp")

_RANK = (
    "FLIGHTWATCH_RANK",
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
    "JSM_NAMESPACE_RANK",
    "VC_TASK_INDEX",
    "JOB_COMPLETION_INDEX",
)
_WORLD_SIZE = (
    "FLIGHTWATCH_WORLD_SIZE",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "SLURM_NTASKS",
    "JSM_NAMESPACE_SIZE",
)
_LOCAL_RANK = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
    "JSM_NAMESPACE_LOCAL_RANK",
)
_ATTEMPT = ("FLIGHTWATCH_ATTEMPT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
_NODE = ("FLIGHTWATCH_NODE", "NODE_NAME", "SLURMD_NODENAME")
_RUN_ID = ("FLIGHTWATCH_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
_KUBERNETES_JOB = ("JOB_NAME", "POD_NAME")
_RUN_NAME = ("FLIGHTWATCH_RUN_NAME", "SLURM_JOB_NAME", "JOB_NAME")
# what a Job's or StatefulSet's controller appends to its own name: "-3", or "-3-x7k2q"
_POD_SUFFIX = re.compile(r"-\d+(-[a-z0-9]{5})?$")


@dataclass(frozen=True)
class Identity:
    """One process's place in a job. `sources` says for each field which variable told it, or "default"."""

    run: str
    run_name: str
    attempt: int
    rank: int
    world_size: int
    local_rank: int
    node: str
    coordinates: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    framework: str = ""

    def to_json(self) -> dict[str, object]:
        """Return what goes into a ring's header."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def seen_by(self, source: str, *, rank: int, world_size: int) -> Identity:
        """Return this identity with the rank that `source` knows, where the environment told none."""
        if self.sources.get("rank") != "default":
            return self
        sources = {**self.sources, "rank": source, "world_size": source}
        return replace(self, rank=rank, world_size=world_size, sources=sources)

    def placed(self, source: str, coordinates: Mapping[str, int]) -> Identity:
        """Return this identity with those coordinates added that the environment did not tell."""
        new = {name: place for name, place in coordinates.items() if name not in self.coordinates}
        sources = {**self.sources, **dict.fromkeys(new, source)}
        return replace(self, coordinates={**self.coordinates, **new}, sources=sources)


def identify(environ: Mapping[str, str], *, host: str | None = None, run: str = "", framework: str = "") -> Identity:
    """Return who the process with this environment is; what nothing tells is rank 0 of 1 on this host.

    Args:
        host: the name of this host, asked of the system when None.
        run: the run id that the user's own code told; wins over the environment.
    """
    sources: dict[str, str] = {}
    host = platform.node() if host is None else host
    rank = _number(environ, _RANK, "rank", sources, default=0)
    coordinates = {}
    for name in DIMENSIONS:
        place = _number(environ, (f"FLIGHTWATCH_{name.upper()}_RANK",), name, sources, default=-1)
        if place >= 0:
            coordinates[name] = place
        else:
            del sources[name]
    return Identity(
        run=_run(environ, run, sources),
        run_name=_text(environ, _RUN_NAME, "run_name", sources, default=""),
        attempt=_number(environ, _ATTEMPT, "attempt", sources, default=0),
        rank=rank,
        world_size=_number(environ, _WORLD_SIZE, "world_size", sources, default=max(1, rank + 1)),
        local_rank=_number(environ, _LOCAL_RANK, "local_rank", sources, default=0),
        node=_text(environ, _NODE, "node", sources, default=host or "localhost"),
        coordinates=coordinates,
        sources=sources,
        framework=framework,
    )


def find_run_id(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return (run id, the variable that told it), or ("", "") when nothing does."""
    for name in _RUN_ID:
        value = environ.get(name, "").strip()
        # torchrun without --rdzv-id says "none"
        if value and not (name == "TORCHELASTIC_RUN_ID" and value == "none"):
            return value, name
    if "KUBERNETES_SERVICE_HOST" in environ:
        for name in _KUBERNETES_JOB:
            if environ.get(name):
                return _POD_SUFFIX.sub("", environ[name]), name
    return "", ""


def _run(environ: Mapping[str, str], told: str, sources: dict[str, str]) -> str:
    if told:
        sources["run"] = "init"
        return told
    found, sources["run"] = find_run_id(environ)
    if not found:
        # the same in all ranks of a job that has a rendezvous, so that they meet in one run
        sources["run"] = "default"
        place = f"{environ.get('MASTER_ADDR', '')}-{environ.get('MASTER_PORT', '')}".strip("-")
        found = f"run-{place}" if place else "run"
    return found


def _number(
    environ: Mapping[str, str], names: tuple[str, ...], what: str, sources: dict[str, str], *, default: int
) -> int:
    for name in names:
        value = environ.get(name, "")
        if value.isdecimal():
            sources[what] = name
            return int(value)
    sources[what] = "default"
    return default


def _text(
    environ: Mapping[str, str], names: tuple[str, ...], what: str, sources: dict[str, str], *, default: str
) -> str:
    for name in names:
        value = environ.get(name, "").strip()
        if value:
            sources[what] = name
            return value
    sources[what] = "default"
    return default
