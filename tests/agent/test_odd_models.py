"""What models and loops do beyond the ordinary: hooks stay right, and out of the way."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch  # after the skip
from torch import nn

import flightwatch
from flightwatch._guard import guard
from flightwatch.pytorch import training
from tests.agent.ring_reader import Ring, read_all


@pytest.fixture
def watched(fresh_process: Path) -> Path:
    training.training.install()
    return fresh_process


def ring_of(directory: Path) -> Ring:
    flightwatch.close()
    (ring,) = read_all(directory)
    return ring


def three_layers(middle: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), middle or nn.ReLU(), nn.Linear(4, 1))


def backward(model: nn.Module) -> None:
    model(torch.ones(2, 4)).sum().backward()


def test_every_fold_of_a_cross_validation_is_watched(watched: Path) -> None:
    for _ in range(8):  # memory of a model that is gone, and so its id, is soon used for the next
        model = three_layers()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        backward(model)
        optimizer.step()
        del model, optimizer
        gc.collect()

    spans = training.training.spans
    assert spans is not None
    assert len(spans._handles) <= 2 * 7  # of the last two models at most
    assert len(ring_of(watched).kind("backward")) == 8 * 3


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(0.05)
        return gradient


class Slow(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return SlowBackward.apply(x)  # type: ignore[no-untyped-call]  # torch ships it so


def test_a_block_that_hands_its_input_through_takes_no_ones_backward(watched: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Slow(), nn.Identity(), nn.Dropout(0.0), nn.Linear(4, 1))
    torch.optim.SGD(model.parameters(), lr=0.1)
    backward(model)

    spans = {r["name"]: r["value"] for r in ring_of(watched).kind("backward")}
    assert set(spans) == {"Linear", "Slow"}
    assert spans["Slow"] >= 50_000_000


def test_a_watched_model_can_be_scripted_and_traced_and_stays_watched(watched: Path) -> None:
    model = three_layers()
    torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4)

    scripted = torch.jit.script(model)
    trace: Any = torch.jit.trace
    traced = trace(model.eval(), x)

    expected = model(x)
    assert torch.equal(scripted(x), expected)
    assert torch.equal(traced(x), expected)
    assert guard.failures == {}
    counts = ring_of(watched).counts()
    assert counts["forward", "0"] == counts["forward", "2"] >= 1


def test_what_is_no_number_is_said_and_switches_nothing_off(fresh_process: Path) -> None:
    flightwatch.init()
    bad: list[Any] = ["warm-up", None, 1j, torch.tensor(1j), 10**400, object()]
    for _ in range(8):
        for value in bad:
            flightwatch.log(stage=value)

    flightwatch.log(loss=1.0)

    assert [(r["name"], r["value"]) for r in ring_of(fresh_process).kind("sample")] == [("loss", 1.0)]
    assert guard.failures == {}
    assert "stage: a str is no number" in (fresh_process / "agent.log").read_text()


def test_names_that_are_logged_once_each_are_not_kept(fresh_process: Path) -> None:
    flightwatch.init()
    for number in range(100):
        flightwatch.log(**{f"metric-{number}": 1.0})

    assert training.training.samples._told == set()


def test_a_step_ends_even_where_a_hook_finds_no_number(watched: Path) -> None:
    model = three_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        training.training.samples.note("loss", "nonsense")
        optimizer.step()

    assert [r["step"] for r in ring_of(watched).kind("step")] == [0, 1, 2]


def test_an_optimizer_for_each_parameter_searches_memory_once(watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = []
    find = training.find_models

    def counted(parameters: Any) -> list[nn.Module]:
        searches.append(parameters)
        return find(parameters)

    monkeypatch.setattr(training, "find_models", counted)
    model = three_layers()

    optimizers = [torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()]

    assert len(optimizers) == 4
    assert len(searches) == 1


def test_models_are_found_in_the_order_of_the_optimizers_parameters(watched: Path) -> None:
    models = [nn.Linear(2, 2) for _ in range(5)]
    order = [3, 0, 4, 1, 2]

    found = training.find_models([p for place in order for p in models[place].parameters()])

    assert [id(model) for model in found] == [id(models[place]) for place in order]
