from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flightwatch._guard import FAILURES_BEFORE_OFF, MAX_LOG_LINES, Guard, contained, guard, guarded


@pytest.fixture(autouse=True)
def _clean() -> None:
    guard.failures.clear()
    guard.off.clear()


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), RecursionError(), BaseException("b")])
def test_whatever_our_code_raises_is_counted_and_swallowed(error: BaseException) -> None:
    @guarded("hook")
    def fails() -> int:
        raise error

    assert fails() is None
    with contained("hook"):
        raise error
    assert guard.failures == {"hook": 2}


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize("error", [MuteError(), ValueError("/path/\udcff")])
def test_an_error_that_cannot_be_written_down_is_swallowed_all_the_same(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_log_path", str(tmp_path / "agent.log"))
    guard._said.clear()

    @guarded("hook")
    def fails() -> None:
        raise error

    fails()

    assert type(error).__name__ in (tmp_path / "agent.log").read_text()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_the_ways_to_end_pass(error: type[BaseException]) -> None:
    @guarded("hook")
    def fails() -> None:
        raise error

    with pytest.raises(error):
        fails()
    with pytest.raises(error), contained("hook"):
        raise error


def test_a_hook_that_keeps_failing_is_switched_off_and_others_stay() -> None:
    calls = []

    def failing(name: str) -> Callable[[], None]:
        @guarded(name)
        def fails() -> None:
            calls.append(name)
            raise ValueError

        return fails

    bad, other = failing("bad"), failing("other")
    for _ in range(3 * FAILURES_BEFORE_OFF):
        bad()
    other()

    assert calls == ["bad"] * FAILURES_BEFORE_OFF + ["other"]


def test_each_cause_is_one_line_however_often_it_happens(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    watch = Guard()
    watch.say("before the log was known")
    watch.log_to(str(log))

    for _ in range(5):
        watch.failed("hook", ValueError("a\nb"))
    watch.failed("hook", KeyError("c"))

    lines = log.read_text().splitlines()
    assert [line.split(" ", 3)[3] for line in lines] == [
        "before the log was known",
        "hook: ValueError: a b",
        "hook: KeyError: 'c'",
    ]
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_log_is_bounded_and_may_be_unwritable(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    watch = Guard()
    watch.log_to(str(log))
    for i in range(2 * MAX_LOG_LINES):
        watch.say(str(i))
    blind = Guard()
    blind.log_to(str(log / "below a file"))

    blind.say("nowhere")

    assert len(log.read_text().splitlines()) == MAX_LOG_LINES
