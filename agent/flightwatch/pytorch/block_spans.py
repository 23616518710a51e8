"""Forward and backward spans of blocks, without touching a tensor.

Backward is seen by hooks on autograd nodes: the span begins when the gradient of the block's output is there, and
ends when that of its input is, or where the backward pass ends for a block whose input needs none (an embedding).
Full backward hooks were rejected: they make outputs views, on which a user's in-place operation raises.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling

from flightwatch import _ops as ops
from flightwatch import _session
from flightwatch._guard import guarded
from flightwatch._recorder import Recorder
from flightwatch.pytorch.blocks import find_blocks, unwrap

_MAX_OUTPUTS = 16  # tensors looked at in one block's inputs or outputs


class _Open(threading.local):
    """Which block this thread is in."""

    forward: Block | None = None
    inputs: tuple[Any, ...] = ()  # autograd nodes of the open forward's inputs
    backward: Block | None = None
    micro: int = 0  # of the open backward
    task: int = -1  # autograd's graph task of the open backward
    callback_task: int = -1  # the last one that will call us at its end


class Block:
    """One watched module: its two ops, and what its hooks do."""

    __slots__ = ("_open", "_recorder", "backward_op", "forward_op")

    def __init__(self, name: str, module: nn.Module, recorder: Recorder, open_blocks: _Open) -> None:
        self._recorder = recorder
        self._open = open_blocks
        self.forward_op = recorder.op(ops.FORWARD, type(module).__name__, module=name)
        self.backward_op = recorder.op(ops.BACKWARD, type(module).__name__, module=name)

    @guarded("forward hook")
    def before_forward(self, args: Any, kwargs: Any) -> None:
        """Open the forward span, unless this call is inside another block or inside a backward (recomputation)."""
        mine = self._open
        if mine.backward is not None and torch._C._current_graph_task_id() == -1:
            _drop_backward(self._recorder, mine)  # its backward pass failed
        if mine.forward is not None or mine.backward is not None:
            return
        mine.forward = self
        if torch.is_grad_enabled():
            mine.inputs = tuple(t.grad_fn for t in _tensors((args, kwargs)) if t.grad_fn is not None)
            for node in mine.inputs:
                node.register_prehook(self._end_backward)
        self._recorder.begin(self.forward_op)

    @guarded("forward hook")
    def after_forward(self, output: Any) -> None:
        """Close the forward span; one that an exception ended is not recorded."""
        mine = self._open
        if mine.forward is not self:
            return
        mine.forward = None
        inputs, mine.inputs = mine.inputs, ()
        if output is None and sys.exc_info()[0] is not None:
            self._recorder.abandon(self.forward_op)
            return
        self._recorder.end(self.forward_op, self._recorder.micro)
        if torch.is_grad_enabled():
            before = functools.partial(self._begin_backward, self._recorder.micro)
            for tensor in _tensors(output):
                node = tensor.grad_fn
                # what a block hands through (an identity, a dropout of 0) has no backward there
                if node is not None and not any(node is known for known in inputs):
                    node.register_prehook(before)

    @guarded("backward hook")
    def _begin_backward(self, micro: int, _: Any) -> None:
        mine = self._open
        task = torch._C._current_graph_task_id()
        if mine.backward is not None:
            if mine.task != task:
                _drop_backward(self._recorder, mine)
            elif mine.backward is self:
                return
            else:
                _finish_backward(self._recorder, mine)
        mine.backward, mine.micro, mine.task = self, micro, task
        self._recorder.begin(self.backward_op)
        if mine.callback_task != task:
            mine.callback_task = task
            # first in the queue, so before DDP's, which waits for the all-reduces
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(functools.partial(_at_end_of_backward, self._recorder, mine, task))

    @guarded("backward hook")
    def _end_backward(self, _: Any) -> None:
        mine = self._open
        if mine.backward is self:
            _finish_backward(self._recorder, mine)


@guarded("backward hook")
def _at_end_of_backward(recorder: Recorder, mine: _Open, task: int) -> None:
    if mine.backward is not None and mine.task == task:
        _finish_backward(recorder, mine)


def _finish_backward(recorder: Recorder, mine: _Open) -> None:
    if mine.backward is not None:
        recorder.end(mine.backward.backward_op, mine.micro)
        mine.backward = None


def _drop_backward(recorder: Recorder, mine: _Open) -> None:
    if mine.backward is not None:
        recorder.abandon(mine.backward.backward_op)
        mine.backward = None


class _Hook:
    """What stands in a module's hooks.

    Models are copied and saved: its copies and pickles do nothing, and need no flightwatch.
    """

    __slots__ = ()

    def __deepcopy__(self, _: Any) -> Any:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> Any:
        # a bound method of the standard library that takes anything and returns None
        return getattr, (contextlib.nullcontext(), "__exit__")


class _BeforeBlock(_Hook):
    __slots__ = ("_block",)

    def __init__(self, block: Block) -> None:
        self._block = block

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        # a constant to the compiler, which then traces nothing of ours and breaks no graph
        if not is_compiling():
            self._block.before_forward(args, kwargs)


class _AfterBlock(_Hook):
    __slots__ = ("_block",)

    def __init__(self, block: Block) -> None:
        self._block = block

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not is_compiling():
            self._block.after_forward(output)


class _BeforeRoot(_Hook):
    """Counts micro-batches: calls of the root in training within one step."""

    __slots__ = ("_calls", "_recorder", "_step")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._step = -1
        self._calls = 0

    def __call__(self, module: nn.Module, args: Any) -> None:
        if not is_compiling():
            self._count(module)

    @guarded("root hook")
    def _count(self, module: nn.Module) -> None:
        if module.training and torch.is_grad_enabled():
            self._calls = self._calls + 1 if self._step == self._recorder.step else 0
            self._step = self._recorder.step
            self._recorder.micro = self._calls


class BlockSpans:
    """Hooks on the blocks of the models of one session."""

    def __init__(self, session: _session.Session) -> None:
        self._recorder = session.recorder
        self._open = _Open()
        self._handles: list[Any] = []
        self._has_watched = False

    def watch(self, model: nn.Module) -> int:
        """Hook the blocks of `model`, wrapped or not; return how many are new."""
        root = unwrap(model)
        blocks = [(name, module) for name, module in find_blocks(root) if not _is_hooked(module)]
        prefix = f"{type(root).__name__}." if self._has_watched else ""
        for name, module in blocks:
            self._hook(f"{prefix}{name}", module)
        if blocks:
            self._has_watched = True
            # of models that are gone; one process may train many, one after the other
            self._handles = [handle for handle in self._handles if handle.hooks_dict_ref() is not None]
            self._handles.append(root.register_forward_pre_hook(_BeforeRoot(self._recorder)))
        return len(blocks)

    def _hook(self, name: str, module: nn.Module) -> None:
        block = Block(name, module, self._recorder, self._open)
        before = module.register_forward_pre_hook(_BeforeBlock(block), with_kwargs=True)
        # first after the forward, so that no other hook's work is in the span; called for a forward that raises, too
        after = module.register_forward_hook(_AfterBlock(block), with_kwargs=True, prepend=True, always_call=True)
        self._handles += (before, after)

    def remove(self) -> None:
        """Take every hook off."""
        while self._handles:
            self._handles.pop().remove()
        self._has_watched = False


def _is_hooked(module: nn.Module) -> bool:
    """Return whether a block's hooks are on `module`; asked of itself, for the id of one that is gone is used again."""
    return any(isinstance(hook, _BeforeBlock) for hook in module._forward_pre_hooks.values())


def take_hooks(module: nn.Module) -> list[tuple[Any, int, Any]]:
    """Take our hooks off `module` and all in it, and return what `put_hooks_back` needs."""
    taken = []
    for inner in module.modules():
        for hooks in (inner._forward_pre_hooks, inner._forward_hooks):
            ours = [(hooks, key, hook) for key, hook in hooks.items() if isinstance(hook, _Hook)]
            for _, key, _ in ours:
                del hooks[key]
            taken += ours
    return taken


def put_hooks_back(taken: list[tuple[Any, int, Any]]) -> None:
    """Undo `take_hooks`; what runs after a forward comes first again."""
    for hooks, key, hook in taken:
        hooks[key] = hook
        if isinstance(hook, _AfterBlock):
            hooks.move_to_end(key, last=False)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested tuples, lists and dicts, _MAX_OUTPUTS at most."""
    waiting = [value]
    left = _MAX_OUTPUTS
    while waiting and left > 0:
        item = waiting.pop()
        if isinstance(item, torch.Tensor):
            left -= 1
            yield item
        elif isinstance(item, (tuple, list)):
            waiting.extend(reversed(item[:_MAX_OUTPUTS]))
        elif isinstance(item, dict):
            waiting.extend(reversed(list(item.values())[:_MAX_OUTPUTS]))
