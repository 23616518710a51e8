"""Up to which step a run may be judged."""

from __future__ import annotations

import numpy as np

from analytics.progress import NOTHING, Progress

ALL = np.ones(4, dtype=bool)


def steps(*last: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(last, dtype=np.int64)


def test_the_slowest_live_rank_tells() -> None:
    assert Progress().newest_complete(steps(9, 8, 7, 9), ALL, now=0) == 7


def test_before_every_rank_has_ended_a_step_nothing_is_complete() -> None:
    assert Progress().newest_complete(steps(5, 5, 5, NOTHING), ALL, now=0) == NOTHING


def test_ranks_that_ended_are_not_waited_for() -> None:
    assert Progress().newest_complete(steps(9, 9, 3, 9), np.array([True, True, False, True]), now=0) == 9


def test_when_all_have_ended_the_farthest_tells() -> None:
    assert Progress().newest_complete(steps(9, 8, 3, NOTHING), ~ALL, now=0) == 9


def test_a_step_that_most_ended_a_grace_ago_is_complete() -> None:
    progress = Progress(grace_seconds=10)
    told = [progress.newest_complete(steps(now + 5, now + 5, now + 5, 2), ALL, now=now) for now in range(13)]

    assert told == [2] * 10 + [5, 6, 7]


def test_one_rank_alone_ahead_does_not_make_steps_complete() -> None:
    progress = Progress(grace_seconds=10)
    told = [progress.newest_complete(steps(50, 2, 2, 2), ALL, now=now) for now in range(30)]

    assert set(told) == {2}


def test_the_memory_is_bounded_by_the_grace() -> None:
    progress = Progress(grace_seconds=10)
    for now in range(10_000):
        progress.newest_complete(steps(now, now, now, now), ALL, now=now)

    assert len(progress._history) <= 12
