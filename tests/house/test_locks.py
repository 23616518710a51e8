"""The locks install the same everywhere: pinned, hashed, and free of one machine's addresses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomllib

REPOSITORY = Path(__file__).parents[2]
REQUIREMENTS = REPOSITORY / "requirements"
HASHED = ("build.txt", "dev.txt", "server.txt")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def _pins(name: str) -> dict[str, set[str]]:
    pins: dict[str, set[str]] = {}
    for package, version in PIN.findall((REQUIREMENTS / name).read_text()):
        pins.setdefault(_normal(package), set()).add(version)
    return pins


def _normal(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


@pytest.mark.parametrize("name", [*HASHED, "torch.txt"])
def test_lock_names_no_index_address_or_path(name: str) -> None:
    lines = [line for line in (REQUIREMENTS / name).read_text().splitlines() if not line.lstrip().startswith("#")]

    assert [line for line in lines if "://" in line or "@" in line or "/" in line or line.startswith("-")] == []


@pytest.mark.parametrize("name", HASHED)
def test_every_pin_carries_hashes(name: str) -> None:
    blocks = re.split(r"\n(?=\S)", (REQUIREMENTS / name).read_text())
    pinned = [block for block in blocks if PIN.match(block)]

    assert pinned
    assert [block.split()[0] for block in pinned if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize("project", ["pyproject.toml", "agent/pyproject.toml"])
def test_every_declared_dependency_is_locked(project: str) -> None:
    declared = tomllib.loads((REPOSITORY / project).read_text())["project"]["dependencies"]
    names = {_normal(re.match(r"[A-Za-z0-9._-]+", text)[0]) for text in declared}  # type: ignore[index]  # all match

    assert sorted(names - set(_pins("server.txt")) - {"flightwatch"}) == []


@pytest.mark.parametrize("name", ["build.txt", "dev.txt", "torch.txt"])
def test_locks_that_share_an_environment_agree(name: str) -> None:
    server = _pins("server.txt")
    others = _pins(name)

    disagreeing = {package: (pins, server[package]) for package, pins in others.items() if package in server}
    assert {package: pair for package, pair in disagreeing.items() if pair[0] != pair[1]} == {}


def test_the_server_is_locked_without_torch() -> None:
    assert "torch" not in _pins("server.txt")
    assert "torch" not in _pins("dev.txt")
