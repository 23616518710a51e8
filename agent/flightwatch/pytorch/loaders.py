"""How long the training loop waits for its next batch, by torch's DataLoader."""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data import dataloader

from flightwatch import _ops as ops
from flightwatch import _session
from flightwatch._guard import guarded
from flightwatch.pytorch.patches import Patches


class Loaders:
    """Times `next()` of every DataLoader's iterator in this process. Its workers are left alone."""

    def __init__(self) -> None:
        self._patches = Patches()

    def install(self) -> None:
        """Patch the iterators' common base."""
        original = dataloader._BaseDataLoaderIter.__next__

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807  # the method it stands for
            op = _begin()
            try:
                batch = original(iterator)
            except BaseException:  # an exhausted loader, or the user's error: no batch, no record
                _abandon(op)
                raise
            _end(op)
            return batch

        self._patches.replace(dataloader._BaseDataLoaderIter, "__next__", __next__)

    def remove(self) -> None:
        """Put it back."""
        self._patches.undo()


@guarded("loader hook")
def _begin() -> int | None:
    recorder = _session.recorder()
    if recorder is None:
        return None
    op = recorder.op(ops.LOADER, "DataLoader")
    recorder.begin(op)
    return op


@guarded("loader hook")
def _end(op: int | None) -> None:
    recorder = _session.recorder()
    if recorder is not None and op is not None:
        recorder.end(op)


@guarded("loader hook")
def _abandon(op: int | None) -> None:
    recorder = _session.recorder()
    if recorder is not None and op is not None:
        recorder.abandon(op)
