"""The numbers that a step yields: loss, gradient norm, learning rate; read at its end, never from a device."""

from __future__ import annotations

import functools
from typing import Any

import torch

from flightwatch import _session
from flightwatch._guard import guard, guarded
from flightwatch._recorder import Recorder
from flightwatch.pytorch.patches import Patches

_MAX_WAITING = 1024  # numbers noted in one step
_HOOKED = ("loss", "grad_norm", "learning_rate")


class Samples:
    """Collects numbers during a step. What the user's own `log()` names is not collected by hooks any more."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, Any, int]] = []
        self._told: set[str] = set()
        self._scaled: tuple[Any, Any] = (None, None)  # what a gradient scaler made, and of what
        self._patches = Patches()

    def install(self) -> None:
        """See `loss.backward()`, `clip_grad_norm_` and `GradScaler.scale`."""
        self._patches.replace(torch.Tensor, "backward", self._watched_backward(torch.Tensor.backward))
        clip = self._watched_clip(torch.nn.utils.clip_grad_norm_)
        self._patches.replace(torch.nn.utils, "clip_grad_norm_", clip)
        self._patches.replace(torch.nn.utils.clip_grad, "clip_grad_norm_", clip)
        self._patches.replace(torch.amp.GradScaler, "scale", self._watched_scale(torch.amp.GradScaler.scale))

    def remove(self) -> None:
        """Put everything back."""
        self._patches.undo()
        self._waiting.clear()
        self._scaled = (None, None)

    def tell(self, recorder: Recorder, name: str, value: Any) -> None:
        """Record a number that the user's code gives; a tensor on a device is skipped: reading it would wait."""
        if name in _HOOKED:
            self._told.add(name)
        number = _read(name, value)
        if number is not None:
            recorder.sample(name, number, aux=recorder.micro)

    def note(self, name: str, value: Any) -> None:
        """Keep a number, or a tensor to be read at the step's end."""
        recorder = _session.recorder()
        if recorder is not None and value is not None and name not in self._told and len(self._waiting) < _MAX_WAITING:
            self._waiting.append((name, value, recorder.micro))

    def flush(self, recorder: Recorder) -> None:
        """Record what was noted in this step."""
        waiting, self._waiting = self._waiting, []
        self._scaled = (None, None)
        for name, value, micro in waiting:
            number = _read(name, value) if name not in self._told else None
            if number is not None:
                recorder.sample(name, number, aux=micro)

    def _watched_backward(self, original: Any) -> Any:
        @functools.wraps(original)
        def backward(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self._note_loss(tensor)
            return original(tensor, *args, **kwargs)

        return backward

    def _watched_clip(self, original: Any) -> Any:
        @functools.wraps(original)
        def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
            norm = original(*args, **kwargs)
            self._note_norm(norm)
            return norm

        return clip_grad_norm_

    def _watched_scale(self, original: Any) -> Any:
        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            self._scaled = (scaled, outputs)
            return scaled

        return scale

    @guarded("loss hook")
    def _note_loss(self, tensor: torch.Tensor) -> None:
        if type(tensor) is torch.Tensor and tensor.dim() == 0:
            scaled, plain = self._scaled
            self.note("loss", (plain if tensor is scaled else tensor).detach())

    @guarded("gradient norm hook")
    def _note_norm(self, norm: Any) -> None:
        self.note("grad_norm", norm)


def _read(name: str, value: Any) -> float | None:
    """Return the number in `value`, or None where it is none, or a tensor not on the CPU or of more than one number."""
    if isinstance(value, torch.Tensor):
        if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
            guard.say(f"{name}: a {type(value).__name__} is not read")
            return None
        if value.device.type != "cpu" or value.numel() != 1:
            guard.say(f"{name}: a tensor of {value.numel()} numbers on {value.device.type} is not read")
            return None
        value = value.detach().item()
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # said, not failed: failures would switch off the good numbers, too
        guard.say(f"{name}: a {type(value).__name__} is no number")
        return None
