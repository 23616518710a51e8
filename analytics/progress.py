"""Up to which step a run is known well enough to be judged."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

# A rank this far behind most others is judged as absent; what it sends later is filled in. Its forwarder flushes
# several times a second and reconnects within seconds, so ten seconds are silence and not delay.
GRACE_SECONDS = 10.0
NOTHING = -1


class Progress:
    """Follows the newest step of each rank, as reported, and tells the newest complete step.

    A step is complete when every live rank has ended it, or when most of them had GRACE_SECONDS ago.
    """

    def __init__(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        self._grace_seconds = grace_seconds
        self._history: deque[tuple[float, int]] = deque()

    def newest_complete(self, last_steps: NDArray[np.int64], is_live: NDArray[np.bool_], *, now: float) -> int:
        """Return the newest complete step, NOTHING before the first.

        Args:
            last_steps: (n,) the newest step that each rank has ended, NOTHING where none.
            is_live: (n,) ranks that have not ended. Where none is left, the farthest rank counts: no more will come.
            now: monotonic seconds.
        """
        if not is_live.any():
            return int(last_steps.max(initial=NOTHING))
        live = np.sort(last_steps[is_live])
        self._history.append((now, int(live[len(live) // 2])))
        while len(self._history) > 1 and now - self._history[1][0] >= self._grace_seconds:
            self._history.popleft()
        then, most = self._history[0]
        overdue = most if now - then >= self._grace_seconds else NOTHING
        return max(int(live[0]), overdue)
