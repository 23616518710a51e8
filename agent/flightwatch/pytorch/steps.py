"""When a step ends: with the block `with flightwatch.step()`, or else with the last optimizer's step."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from flightwatch import _ops as ops
from flightwatch import _session
from flightwatch._guard import guarded
from flightwatch.pytorch.samples import Samples

# Another optimizer that steps this often while the main one rests is the main one: a GAN's critic steps 5 times per
# generator's.
_REST_BEFORE_SUCCESSION = 8


class Steps:
    """Spans of optimizers, and the end of each step. One per session."""

    def __init__(self, session: _session.Session, samples: Samples) -> None:
        self._recorder = session.recorder
        self._samples = samples
        self._is_explicit = False
        self._main: weakref.ref[Any] | None = None
        self._since_main = 0
        self._stepping: list[tuple[int, int]] = []  # (id of optimizer, op), outermost first
        self._handles: list[Any] = []

    def install(self) -> None:
        """Hook every optimizer's step."""
        self._handles.append(register_optimizer_step_pre_hook(self._before))
        self._handles.append(register_optimizer_step_post_hook(self._after))

    def remove(self) -> None:
        """Take the hooks off."""
        while self._handles:
            self._handles.pop().remove()

    def follow(self, optimizer: Any) -> None:
        """Let the steps of `optimizer` end a step: the one told, or else the one constructed last."""
        self._main = weakref.ref(optimizer)
        self._since_main = 0

    @guarded("step")
    def begin(self, number: int | None) -> None:
        """Begin a step that the user's code tells."""
        self._is_explicit = True
        if number is not None:
            self._recorder.skip_to(number)
        self._recorder.begin_step()

    @guarded("step")
    def end(self, *, finished: bool) -> None:
        """End the step; one that an exception cut short is not recorded, and its number is used again."""
        self._stepping.clear()
        self._samples.flush(self._recorder)
        self._recorder.end_step(recorded=finished)
        _session.refine_identity()

    @guarded("optimizer hook")
    def _before(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        known = [place for place, (which, _) in enumerate(self._stepping) if which == id(optimizer)]
        if known:  # its last step raised, so that it never ended
            self._recorder.abandon(self._stepping[known[0]][1])
            del self._stepping[known[0] :]
        op = self._recorder.op(ops.OPTIMIZER, type(optimizer).__name__)
        if not self._stepping:
            self._recorder.begin(op)
        self._stepping.append((id(optimizer), op))

    @guarded("optimizer hook")
    def _after(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if not self._stepping or self._stepping[-1][0] != id(optimizer):
            return
        _, op = self._stepping.pop()
        if self._stepping:  # one inside another: the outer one's span, the outer one's step
            return
        self._recorder.end(op)
        if not self._is_explicit and self._ends_step(optimizer):
            self._note_learning_rate(optimizer)
            self.end(finished=True)
        elif self._is_explicit:
            self._note_learning_rate(optimizer)

    def _ends_step(self, optimizer: torch.optim.Optimizer) -> bool:
        main = None if self._main is None else self._main()
        if main is not optimizer:
            self._since_main += 1
            if main is not None and self._since_main < _REST_BEFORE_SUCCESSION:
                return False
            self._main = weakref.ref(optimizer)
        self._since_main = 0
        return True

    def _note_learning_rate(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer.param_groups:
            self._samples.note("learning_rate", optimizer.param_groups[0].get("lr"))
