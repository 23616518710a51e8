"""The two distributions stay what they are: flat packages of the repository beside one named package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FLAT_PACKAGES = ("collector", "analytics", "dashboard", "fleet")


def test_no_package_marker_lies_under_tests() -> None:
    markers = sorted(str(path) for path in (REPOSITORY / "tests").rglob("__init__.py"))

    assert markers == []


@pytest.mark.parametrize("name", FLAT_PACKAGES)
def test_flat_name_is_ours_and_no_strangers(name: str) -> None:
    spec = importlib.util.find_spec(name)

    assert spec is not None
    assert spec.origin == str(REPOSITORY / name / "__init__.py")


def test_agent_is_the_one_beside_the_server() -> None:
    spec = importlib.util.find_spec("flightwatch")

    assert spec is not None
    assert spec.origin == str(REPOSITORY / "agent" / "flightwatch" / "__init__.py")


@pytest.mark.parametrize("root", [*FLAT_PACKAGES, "agent/flightwatch"])
def test_every_package_says_what_it_is(root: str) -> None:
    silent = [
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / root).rglob("__init__.py")
        if not path.read_text().lstrip().startswith('"""')
    ]

    assert silent == []


@pytest.mark.parametrize("root", [*FLAT_PACKAGES, "agent/flightwatch"])
def test_every_folder_of_modules_is_a_package(root: str) -> None:
    # _site is put on the path of child processes for its sitecustomize; as a package it would not work
    folders = {path.parent for path in (REPOSITORY / root).rglob("*.py") if path.parent.name != "_site"}

    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists()) == []
