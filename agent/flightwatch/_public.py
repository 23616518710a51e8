"""The five calls of the public face. Each does nothing, harmlessly, where the agent is off or could not start.

What they need is imported at their first call: this module is read by every process of a watched job, helpers included.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from flightwatch._guard import guarded

if TYPE_CHECKING:
    from flightwatch.pytorch.training import Training

_Model = TypeVar("_Model")


def init(*, run: str = "", first_step: int = 0) -> bool:
    """Start watching this process, and return whether it is watched; call it once, before the process group is made.

    Args:
        run: the run's id, the same in all ranks and restarts; "" takes it from the launcher (FLIGHTWATCH_RUN_ID,
        torchrun,     Slurm, Kubernetes).
        first_step: the number of the first step, when training resumes; >= 0.
    """
    return bool(_init(run, first_step))


def watch(model: _Model, optimizer: Any = None, dataloader: Any = None) -> _Model:
    """Watch a model's blocks, its optimizer's steps and the wait for its batches; return the model itself.

    Steps end with `optimizer.step()`, unless the code says `with flightwatch.step():`. Waits are seen for any
    torch.utils.data.DataLoader of the process, named here or not. Calls `init()` if need be.
    """
    _watch(model, optimizer, dataloader)
    return model


class step:  # noqa: N801  # reads as a word: `with flightwatch.step():`
    """Context manager for one training step; from the first one on, steps end here and no longer with the optimizer's.

    Args:
        number: the global step, if the code knows it; None counts on.

    An exception in its body passes unchanged; the step is then not recorded.
    """

    __slots__ = ("_number",)

    def __init__(self, number: int | None = None) -> None:
        self._number = number

    def __enter__(self) -> None:
        _begin_step(self._number)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _end_step(kind is None)


def log(**values: Any) -> None:
    """Record numbers of the current step: floats, or tensors of one number on the CPU.

    A tensor on a device is skipped and said so in agent.log: reading it would make the step wait for the device.

    Example: `flightwatch.log(loss=loss, grad_norm=norm)` inside `with flightwatch.step():`.
    """
    for name, value in values.items():
        _log(name, value)


def close() -> None:
    """Stop watching this process for good, and take every hook off. Done at exit by itself."""
    _close()


def _hooks() -> Training | None:
    """Return this process's hooks; None without torch, which is never imported for its own sake."""
    if "torch" not in sys.modules:
        return None
    from flightwatch.pytorch.training import training

    return training


@guarded("init")
def _init(run: str, first_step: int) -> bool:
    from flightwatch import _session

    if _session.start(run=run, first_step=first_step) is None:
        return False
    hooks = _hooks()
    if hooks is None:
        from flightwatch._autostart import arm_for_session

        arm_for_session()
    else:
        hooks.install()
        hooks.attach()
    return True


@guarded("close")
def _close() -> None:
    from flightwatch import _session

    _session.close()


@guarded("watch")
def _watch(model: Any, optimizer: Any, dataloader: Any) -> None:
    from flightwatch import _session

    hooks = _hooks()
    if hooks is None or _session.start() is None:
        return
    hooks.install()
    hooks.watch([model], optimizer)
    hooks.check_loader(dataloader)


@guarded("step")
def _begin_step(number: int | None) -> None:
    from flightwatch import _session

    session = _session.current()
    if session is None:
        return
    hooks = _hooks()
    if hooks is not None and hooks.attach() and hooks.steps is not None:
        hooks.steps.begin(number)
    else:
        if number is not None:
            session.recorder.skip_to(number)
        session.recorder.begin_step()


@guarded("step")
def _end_step(finished: bool) -> None:
    from flightwatch import _session

    session = _session.current()
    if session is None:
        return
    hooks = _hooks()
    if hooks is not None and hooks.steps is not None:
        hooks.steps.end(finished=finished)
    else:
        session.recorder.end_step(recorded=finished)


@guarded("log")
def _log(name: str, value: Any) -> None:
    from flightwatch import _session

    recorder = _session.recorder()
    if recorder is None:
        return
    hooks = _hooks()
    if hooks is not None:
        hooks.samples.tell(recorder, name, value)
    else:
        recorder.sample(name, float(value), aux=recorder.micro)
