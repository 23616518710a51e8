"""All hooks of one process, and how a model, its optimizers and its loaders are found without being told."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from flightwatch import _session
from flightwatch._guard import contained, guard, guarded
from flightwatch._recorder import Recorder
from flightwatch.pytorch.block_spans import BlockSpans
from flightwatch.pytorch.loaders import Loaders
from flightwatch.pytorch.patches import Patches
from flightwatch.pytorch.samples import Samples
from flightwatch.pytorch.scripting import Scripting
from flightwatch.pytorch.steps import Steps


class Training:
    """The hooks of this process. `install` is idempotent; what needs a session is hooked once one runs."""

    def __init__(self) -> None:
        self.samples = Samples()
        self.steps: Steps | None = None
        self.spans: BlockSpans | None = None
        self._loaders = Loaders()
        self._scripting = Scripting()
        self._collectives: Any = None
        self._patches = Patches()
        self._is_installed = False
        self._optimizer_is_told = False
        self._roots: list[weakref.ref[nn.Module]] = []  # found, and alive for all we know

    def install(self) -> None:
        """Hook loaders, collectives, and the making of optimizers."""
        if self._is_installed:
            return
        self._is_installed = True
        with contained("install loader hooks"):
            self._loaders.install()
        with contained("install sample hooks"):
            self.samples.install()
        with contained("install scripting hooks"):
            self._scripting.install()
        with contained("install collective hooks"):
            self._install_collectives()
        with contained("install optimizer hooks"):
            self._patches.replace(Optimizer, "__init__", self._followed_by(Optimizer.__init__, self._note_optimizer))
        with contained("install wrapper hooks"):
            if torch.distributed.is_available():
                wrapper = nn.parallel.DistributedDataParallel
                self._patches.replace(wrapper, "__init__", self._followed_by(wrapper.__init__, self._note_replica))

    def _install_collectives(self) -> None:
        if torch.distributed.is_available():
            from flightwatch.pytorch.collectives import Collectives

            self._collectives = Collectives(self._sink)
            self._collectives.install()

    def remove(self) -> None:
        """Unload everything; nothing of ours is on anyone's path afterwards."""
        parts = [self._loaders, self.samples, self._scripting, self._collectives, self.steps, self.spans]
        for part in parts:
            if part is not None:
                with contained("unload"):
                    part.remove()
        self._patches.undo()
        self._is_installed = False

    def attach(self) -> bool:
        """Start the session if none runs and hook what needs one; False when this process is not to be watched."""
        session = _session.start()
        if session is None:
            return False
        if self.steps is None:
            self.steps = Steps(session, self.samples)
            self.spans = BlockSpans(session)
            session.closers.append(self.remove)
            if self._collectives is not None:
                session.is_busy = self._collectives.is_busy
            self.steps.install()
        return True

    def watch(self, models: Iterable[nn.Module], optimizer: Any = None) -> None:
        """Watch what the user's code names."""
        if not self.attach() or self.steps is None or self.spans is None:
            return
        for model in models:
            self.spans.watch(model)
        if optimizer is not None:
            self._optimizer_is_told = True
            self.steps.follow(optimizer)

    def check_loader(self, loader: Any) -> None:
        """Say so where a loader is of a kind that is not timed."""
        if loader is not None and not isinstance(loader, DataLoader):
            guard.say(f"waits for a {type(loader).__name__} are not seen: it is no torch DataLoader")

    def _sink(self) -> Recorder | None:
        recorder = _session.recorder()
        if recorder is None and not _session.is_over():
            self.attach()
            recorder = _session.recorder()
        return recorder

    def _followed_by(self, original: Any, note: Any) -> Any:
        @functools.wraps(original)
        def __init__(new: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  # the method it stands for
            original(new, *args, **kwargs)
            note(new)

        return __init__

    @guarded("replica discovery")
    def _note_replica(self, wrapper: Any) -> None:
        # ranks that hold the same model: all of one role, told apart by dp alone
        if not _session.is_over() and self.attach():
            _session.place("DistributedDataParallel", {"dp": torch.distributed.get_rank(wrapper.process_group)})

    @guarded("optimizer discovery")
    def _note_optimizer(self, optimizer: Any) -> None:
        if _session.is_over():
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        is_known = self._knows(parameters)
        roots = [] if is_known else find_models(parameters)
        if not roots and not is_known:
            guard.say(f"no model holds the parameters of {type(optimizer).__name__}")
            return
        if not self.attach() or self.steps is None or self.spans is None:
            return
        for root in roots:
            self.spans.watch(root)
        self._roots += [weakref.ref(root) for root in roots]
        if not self._optimizer_is_told:
            self.steps.follow(optimizer)

    def _knows(self, parameters: Iterable[Any]) -> bool:
        """Return whether models found earlier hold all of `parameters`: some make an optimizer for each of them."""
        self._roots = [reference for reference in self._roots if reference() is not None]
        roots = [root for root in (reference() for reference in self._roots) if root is not None]
        held = {id(parameter) for root in roots for parameter in root.parameters()}
        return all(id(parameter) in held for parameter in parameters)


def find_models(parameters: Iterable[Any]) -> list[nn.Module]:
    """Return the outermost modules alive that hold any of `parameters`, wrappers such as DDP included.

    Cost: one pass over the collector's objects, about 0.1 s, once per optimizer made.
    """
    places = {id(parameter): place for place, parameter in enumerate(parameters)}
    # by type(), not isinstance(), which may run a lazy object's code
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module) and "_modules" in vars(thing)]
    inner = {id(child) for module in modules for child in module._modules.values() if child is not None}
    outermost = [module for module in modules if id(module) not in inner]
    first = {
        id(module): min((places.get(id(p), len(places)) for p in module.parameters()), default=len(places))
        for module in outermost
    }
    # in the optimizer's order, which is the same in all ranks; the collector's is not
    found = [module for module in outermost if first[id(module)] < len(places)]
    return sorted(found, key=lambda module: first[id(module)])


training = Training()
