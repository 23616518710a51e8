from __future__ import annotations

import inspect
import re

import flightwatch


def test_the_public_face_is_these_names() -> None:
    assert sorted(flightwatch.__all__) == ["__version__", "close", "init", "log", "step", "watch"]
    things = {name: thing for name, thing in vars(flightwatch).items() if not inspect.ismodule(thing)}
    public = {name for name in things if not name.startswith("_")}
    assert public == {"close", "init", "log", "step", "watch"}


def test_their_signatures_are_these() -> None:
    assert str(inspect.signature(flightwatch.init)) == "(*, run: 'str' = '', first_step: 'int' = 0) -> 'bool'"
    assert list(inspect.signature(flightwatch.watch).parameters) == ["model", "optimizer", "dataloader"]
    assert list(inspect.signature(flightwatch.step).parameters) == ["number"]
    assert list(inspect.signature(flightwatch.close).parameters) == []


def test_the_version_is_a_release_number() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", flightwatch.__version__)


def test_every_call_is_harmless_in_a_process_without_torch_or_init() -> None:
    with flightwatch.step():
        flightwatch.log(loss=1.0)
    flightwatch.log(loss="not a number")
