from __future__ import annotations

from pathlib import Path

import pytest

import collector
from collector.store.scripts import describe_mismatch, migration_scripts
from flightwatch.errors import FlightwatchError


def install(monkeypatch: pytest.MonkeyPatch, package: Path) -> None:
    package.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(collector, "__file__", str(package / "__init__.py"))


def test_finds_the_scripts_of_this_checkout() -> None:
    assert (migration_scripts("telemetry") / "0001_first.sql").is_file()
    assert (migration_scripts("records") / "env.py").is_file()


def test_an_installed_package_brings_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path / "collector")
    inside, beside = tmp_path / "collector" / "migrations" / "records", tmp_path / "migrations" / "records"
    inside.mkdir(parents=True)
    beside.mkdir(parents=True)

    assert migration_scripts("records") == inside


def test_says_that_an_installation_is_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path / "collector")

    with pytest.raises(FlightwatchError, match="reinstall flightwatch-server"):
        migration_scripts("records")


@pytest.mark.parametrize(("is_newer", "remedy"), [(True, "upgrade flightwatch"), (False, "run `flightwatch migrate`")])
def test_a_mismatch_names_both_versions_and_the_remedy(is_newer: bool, remedy: str) -> None:
    line = describe_mismatch("the store x", "2", "3", is_newer=is_newer)

    assert line == f"the store x is at version 2, this flightwatch wants 3; {remedy}"
