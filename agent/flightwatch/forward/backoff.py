"""How long to wait before the next try to reach a collector."""

from __future__ import annotations

import random

# gRPC's own jitter is only +-20 % around 1 s, which brings 10,000 nodes back within 0.4 s; full jitter spreads them.
BASE_SECONDS = 0.25
CAP_SECONDS = 60.0
EARLY_CAP_SECONDS = 5.0  # in the first minute: most outages are a collector's restart
EARLY_SECONDS = 60.0


class Backoff:
    """Full jitter: uniform in (0, min(cap, base * 2^n)), the first over the window that the collector asked for."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._random = source or random.Random()  # noqa: S311  # spreads load, guards nothing
        self._failures = 0
        self._failing_seconds = 0.0

    def next_delay(self, window_seconds: float = 0.0) -> float:
        """Return the seconds to wait now; each call counts as one more failure."""
        cap = EARLY_CAP_SECONDS if self._failing_seconds < EARLY_SECONDS else CAP_SECONDS
        ceiling = min(cap, BASE_SECONDS * 2 ** min(self._failures, 16))
        if self._failures == 0:
            ceiling = max(ceiling, window_seconds)
        self._failures += 1
        delay = self._random.uniform(0.0, ceiling)
        self._failing_seconds += delay
        return delay

    def succeeded(self) -> None:
        """Forget the failures: a collector acknowledged something."""
        self._failures = 0
        self._failing_seconds = 0.0
