"""`FLIGHTWATCH=1`: watch a process that did not ask for it, once it turns out to train.

Imported by flightwatch.pth at the start of every Python process. It hooks nothing but the import of torch, and leaves
alone what only launches or helps training; the session starts when an optimizer is made over a model, or a collective
runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from flightwatch._guard import guarded

# Programs that start or serve training and never train, by the file or the module they were started as.
LAUNCHERS = frozenset(
    {"torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed", "deepspeed.launcher.launch"}
)
LEFT_ALONE = LAUNCHERS | {
    "flightwatch",
    "pip",
    "pip3",
    "conda",
    "uv",
    "ruff",
    "mypy",
    "accelerate",
    "tensorboard",
    "ray",
}
# How multiprocessing starts its helpers; a spawned worker is not among them, for ranks are spawned, too.
_HELPER_CODE = ("from multiprocessing.resource_tracker", "from multiprocessing.semaphore_tracker")


def trains(orig_argv: Sequence[str]) -> bool:
    """Return whether a process started with these arguments (`sys.orig_argv`) may be a training rank."""
    arguments = list(orig_argv[1:])
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option == "-m":
            return not arguments or (arguments[0] not in LEFT_ALONE and arguments[0].split(".")[0] not in LEFT_ALONE)
        if option == "-c":
            return not arguments or not arguments[0].lstrip().startswith(_HELPER_CODE)
        if option in ("-X", "-W") and arguments:
            arguments.pop(0)
    name = os.path.basename(arguments[0]) if arguments else ""
    return name.removesuffix(".py") not in LEFT_ALONE


class _AfterImport:
    """A finder that steps aside: it lets the others find torch, and has us called when its import is done."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        # stays armed: libraries ask whether there is a torch long before one of them imports it
        return self._spec(name, path, target) if name == "torch" else None

    @guarded("import hook")
    def _spec(self, name: str, path: Any, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None and spec.loader is not None:
                self._call_us_after(spec.loader)
                return spec  # type: ignore[no-any-return]  # finders are duck-typed
        return None

    def _call_us_after(self, loader: Any) -> None:
        original = loader.exec_module
        others = vars(loader).get("exec_module")

        def exec_module(module: ModuleType) -> None:
            if others is None:
                vars(loader).pop("exec_module", None)
            else:
                loader.exec_module = others
            original(module)
            disarm()
            hook_torch()

        loader.exec_module = exec_module


_finder = _AfterImport()


@guarded("autostart")
def arm() -> None:
    """Wait for torch, or hook it at once when it is there already."""
    if os.environ.get("FLIGHTWATCH") != "1" or not trains(sys.orig_argv):
        return
    if "torch" in sys.modules:
        hook_torch()
    elif _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def arm_for_session() -> None:
    """Wait for torch in a process that asked for the agent itself, before it imported torch."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def disarm() -> None:
    """Stop waiting for torch."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


@guarded("autostart")
def hook_torch() -> None:
    """Install the hooks that find out whether this process trains."""
    from flightwatch import _session
    from flightwatch.pytorch.training import training

    training.install()
    if _session.current() is not None:
        training.attach()
