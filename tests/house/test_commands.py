"""Every verb that the command line offers is there, and says how it is used."""

from __future__ import annotations

import argparse
import importlib
from importlib.metadata import entry_points

import pytest

from flightwatch.cli import AGENT_VERBS, SERVER_VERBS, main

MODULES = {name: module for name, (module, _) in AGENT_VERBS.items()} | {
    entry.name: entry.value for entry in entry_points(group="flightwatch.commands")
}


def test_the_overview_lists_just_the_verbs_that_the_server_declares() -> None:
    assert sorted(entry.name for entry in entry_points(group="flightwatch.commands")) == sorted(SERVER_VERBS)


@pytest.mark.parametrize("name", sorted(AGENT_VERBS | SERVER_VERBS))
def test_verb_is_a_module_with_help_arguments_and_run(name: str) -> None:
    verb = importlib.import_module(MODULES[name])
    parser = argparse.ArgumentParser()

    verb.add_arguments(parser)

    assert verb.HELP
    assert "\n" not in verb.HELP
    assert callable(verb.run)


@pytest.mark.parametrize("name", sorted(AGENT_VERBS | SERVER_VERBS))
def test_verb_shows_its_help_and_exits_with_0(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])

    assert stopped.value.code == 0
    assert f"usage: flightwatch {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["diagnose", "incidents", "runs", "status", "version"])
def test_verb_that_prints_data_offers_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])

    assert "--json" in capsys.readouterr().out


def test_unknown_verb_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["fly"])

    assert code == 2
    assert capsys.readouterr().err == "flightwatch: unknown verb 'fly'; `flightwatch --help` lists them\n"
