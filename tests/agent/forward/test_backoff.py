from __future__ import annotations

import random

from flightwatch.forward.backoff import CAP_SECONDS, EARLY_CAP_SECONDS, Backoff


class _AlwaysLongest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return b


def test_ceiling_doubles_up_to_the_early_cap() -> None:
    backoff = Backoff(_AlwaysLongest())

    delays = [backoff.next_delay() for _ in range(7)]

    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, EARLY_CAP_SECONDS, EARLY_CAP_SECONDS]


def test_cap_rises_after_a_minute_of_failures() -> None:
    backoff = Backoff(_AlwaysLongest())

    delays = [backoff.next_delay() for _ in range(30)]

    assert max(delays) == CAP_SECONDS
    assert sum(delay for delay in delays if delay <= EARLY_CAP_SECONDS) >= 60.0


def test_full_jitter_spreads_a_thousand_nodes_evenly() -> None:
    delays = [Backoff(random.Random(seed)).next_delay(30.0) for seed in range(1000)]

    first_second = sum(delay < 1.0 for delay in delays)
    assert 10 <= first_second <= 70  # 33 expected of a uniform spread
    assert max(delays) <= 30.0


def test_window_of_the_collector_counts_for_the_first_try_only() -> None:
    backoff = Backoff(_AlwaysLongest())

    assert backoff.next_delay(30.0) == 30.0
    assert backoff.next_delay(30.0) == 0.5


def test_success_begins_anew() -> None:
    backoff = Backoff(_AlwaysLongest())
    for _ in range(5):
        backoff.next_delay()

    backoff.succeeded()

    assert backoff.next_delay() == 0.25
