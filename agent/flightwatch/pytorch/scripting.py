"""TorchScript compiles the hooks that it finds on a module: ours are hidden from it."""

from __future__ import annotations

import functools
from typing import Any

from torch.jit import _recursive

from flightwatch._guard import guarded
from flightwatch.pytorch.block_spans import put_hooks_back, take_hooks
from flightwatch.pytorch.patches import Patches


class Scripting:
    """Takes our hooks off a module while `torch.jit.script` reads it; the scripted one is not watched."""

    def __init__(self) -> None:
        self._patches = Patches()

    def install(self) -> None:
        """Patch the one function that both `script` and `trace` make modules with."""
        original: Any = _recursive.create_script_module

        @functools.wraps(original)
        def create_script_module(nn_module: Any, *args: Any, **kwargs: Any) -> Any:
            taken = _take(nn_module)
            try:
                return original(nn_module, *args, **kwargs)
            finally:
                _put_back(taken)

        self._patches.replace(_recursive, "create_script_module", create_script_module)

    def remove(self) -> None:
        """Put it back."""
        self._patches.undo()


_take = guarded("scripting hook")(take_hooks)


@guarded("scripting hook")
def _put_back(taken: Any) -> None:
    put_hooks_back(taken or [])
