"""Whatever of ours fails, in any place, training goes on to the same numbers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from torch import nn  # after the skip

import flightwatch
from flightwatch import _autostart, _directory, _identity, _recorder, _ring, _session
from flightwatch.pytorch import block_spans, blocks, loaders, samples, steps, training
from tests.agent.tiny_training import train


def _internals() -> Iterator[tuple[Any, str]]:
    """Every function of ours that is called behind a seam; the seams themselves (guarded, hooks' __call__) excepted."""
    core = (_directory, _identity, _recorder, _ring, _session)
    for module in (*core, block_spans, blocks, loaders, samples, steps, training):
        for name, thing in vars(module).items():
            if getattr(thing, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(thing) and not hasattr(thing, "__wrapped__"):
                yield module, name
            elif inspect.isclass(thing) and not issubclass(thing, block_spans._Hook):
                functions = {n: f for n, f in vars(thing).items() if inspect.isfunction(f) and n != "__del__"}
                yield from ((thing, n) for n, f in functions.items() if not hasattr(f, "__wrapped__"))


@pytest.mark.parametrize(
    ("owner", "name"),
    [pytest.param(*pair, id=f"{getattr(pair[0], '__name__', '')}.{pair[1]}") for pair in _internals()],
)
def test_any_internal_function_may_fail_and_training_does_not_notice(
    owner: Any, name: str, fresh_process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError(name)

    reference = train(n_steps=2)
    monkeypatch.setattr(owner, name, explode)

    def before(model: nn.Module, optimizer: Any) -> None:
        flightwatch.init()
        flightwatch.watch(model, optimizer=optimizer)

    _autostart.hook_torch()
    result = train(n_steps=2, before=before)
    with flightwatch.step():
        flightwatch.log(loss=1.0)
    flightwatch.close()
    monkeypatch.undo()

    assert result == reference
