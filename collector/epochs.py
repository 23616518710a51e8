"""What one stream has said so far about its processes: who they are, and what their op ids mean."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from flightwatch._layout import MAX_OPS
from flightwatch._ops import OTHER, Op
from flightwatch.wire import flightwatch_pb2 as wire

OTHER_KEY = Op(OTHER, OTHER).key
UNKNOWN = 0  # no key is 0
MAX_OP_ID = MAX_OPS  # of a ring; the record's 24 bits would make one descriptor cost a table of 128 MiB


@dataclass(slots=True)
class Epoch:
    """One process: its identity, its clock's offset, and the keys of its op ids (op 0 is "other" from the start)."""

    run: str
    rank: int
    started_ns: int
    offset_ns: int
    keys: npt.NDArray[np.uint64] = field(default_factory=lambda: np.array([OTHER_KEY], np.uint64))
    highest_op: int = 0

    def learn(self, op: int, key: int) -> None:
        """Remember what an op id means; the array grows by doubling, UNKNOWN where nothing was said."""
        if op >= len(self.keys):
            grown = np.full(max(2 * len(self.keys), op + 1), UNKNOWN, np.uint64)
            grown[: len(self.keys)] = self.keys
            self.keys = grown
        self.keys[op] = key
        self.highest_op = max(self.highest_op, op)

    def key_of(self, op: int) -> int:
        """Return the key of an op id, UNKNOWN if nothing was said about it."""
        return int(self.keys[op]) if op < len(self.keys) else UNKNOWN


class EpochBook:
    """The processes of one stream by epoch. Each new stream begins with an empty one."""

    def __init__(self) -> None:
        self._epochs: dict[int, Epoch] = {}
        self.runs: list[str] = []

    def begin(self, start: wire.RankStart) -> None:
        """Take in a process, or a better description of one; what its ops mean stays."""
        known = self._epochs.get(start.epoch)
        epoch = Epoch(
            run=start.run,
            rank=start.rank,
            started_ns=start.start_unix_ns,
            offset_ns=start.start_unix_ns - start.start_monotonic_ns,
        )
        if known is not None:
            epoch.keys, epoch.highest_op = known.keys, known.highest_op
        self._epochs[start.epoch] = epoch
        if start.run not in self.runs:
            bisect.insort(self.runs, start.run)

    def find(self, epoch: int) -> Epoch | None:
        """Return a process by its epoch."""
        return self._epochs.get(epoch)
