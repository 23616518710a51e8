from __future__ import annotations

import signal
from pathlib import Path

import pytest

from dashboard.supervision.part import Part, PartPlan
from dashboard.supervision.supervisor import MAX_BACKOFF_SECONDS, PartFailedError, Supervisor


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakePart(Part):
    """A part without a process: `ends` says how each of its lives ends, None for never."""

    def __init__(self, name: str, journal: list[str], *, ready: bool = True, stops: bool = True) -> None:
        super().__init__(PartPlan(name, (), lambda: ready, "somewhere"), {}, Path("/nowhere"))
        self.exit: int | None = None
        self._journal = journal
        self._stops = stops

    @property
    def exit_code(self) -> int | None:
        return self.exit

    def start(self) -> None:
        self.exit = None
        self._journal.append(f"start {self.plan.name}")

    def ask_to_stop(self) -> None:
        self._journal.append(f"stop {self.plan.name}")

    def wait_or_kill(self, timeout_s: float) -> bool:
        self._journal.append(f"end {self.plan.name}")
        return self._stops


def started(*parts: FakePart) -> tuple[Supervisor, FakeClock, list[str]]:
    clock = FakeClock()
    said: list[str] = []
    supervisor = Supervisor(said.append, monotonic=clock.monotonic, sleep=clock.sleep)
    supervisor.start(parts, lambda: False)
    said.clear()
    return supervisor, clock, said


def starts(journal: list[str]) -> int:
    return journal.count("start collector")


def test_a_part_that_dies_is_started_again_after_a_while_and_it_is_said() -> None:
    journal: list[str] = []
    part = FakePart("collector", journal)
    supervisor, clock, said = started(part)
    part.exit = -int(signal.SIGKILL)

    supervisor.look()
    assert starts(journal) == 1
    clock.now += 0.6
    supervisor.look()

    assert starts(journal) == 2
    assert "collector ended (killed by signal 9); starting it again in 0.5 s" in said[0]
    assert "collector started again" in said[1]


def test_a_part_that_keeps_dying_is_started_ever_more_rarely() -> None:
    journal: list[str] = []
    part = FakePart("collector", journal)
    supervisor, clock, _ = started(part)

    for _ in range(3600):
        part.exit = 1
        supervisor.look()
        clock.now += 1.0

    assert 3600 / (MAX_BACKOFF_SECONDS + 2) <= starts(journal) <= 3600 / MAX_BACKOFF_SECONDS + 10


def test_a_part_that_lived_long_is_started_again_at_once() -> None:
    journal: list[str] = []
    part = FakePart("collector", journal)
    supervisor, clock, said = started(part)

    for _ in range(8):
        clock.now += 100.0
        part.exit = 1
        supervisor.look()
        clock.now += 0.6
        supervisor.look()

    assert starts(journal) == 9
    assert all("in 0.5 s" in line for line in said if "ended" in line)


def test_the_first_part_is_stopped_after_all_others_have_ended() -> None:
    journal: list[str] = []
    supervisor, _, _ = started(*(FakePart(name, journal) for name in ("store", "collector", "dashboard")))
    journal.clear()

    supervisor.stop()

    assert journal.index("stop store") > max(journal.index("end collector"), journal.index("end dashboard"))


def test_a_part_that_had_to_be_killed_is_named() -> None:
    supervisor, _, said = started(FakePart("store", [], stops=False))

    supervisor.stop()

    assert said == ["store did not stop within 12 s and was killed"]


def test_a_part_that_never_answers_fails_the_start() -> None:
    clock = FakeClock()
    supervisor = Supervisor(lambda line: None, monotonic=clock.monotonic, sleep=clock.sleep)

    with pytest.raises(PartFailedError, match="store does not answer at somewhere after 90 s"):
        supervisor.start([FakePart("store", [], ready=False)], lambda: False)


def test_a_stop_during_the_start_is_heeded() -> None:
    clock = FakeClock()
    supervisor = Supervisor(lambda line: None, monotonic=clock.monotonic, sleep=clock.sleep)

    supervisor.start([FakePart("store", [], ready=False)], lambda: clock.now > 1.0)

    assert clock.now < 2.0


def test_a_part_that_ends_at_once_fails_the_start_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "diagnose.log").write_text("old\n")
    plan = PartPlan("diagnose", ("nonsense",), lambda: False)
    supervisor = Supervisor(lambda line: None)

    with pytest.raises(PartFailedError, match="diagnose did not start: unknown verb 'nonsense'") as failed:
        supervisor.start([Part(plan, {"PATH": ""}, tmp_path)], lambda: False)

    assert "\n" not in str(failed.value)
    supervisor.stop()


def test_a_part_that_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    part = Part(PartPlan("version", ("version",), lambda: True), {}, tmp_path)
    part.start()

    assert not part.wait_or_kill(0.0)
    assert part.exit_code == -signal.SIGKILL
