from __future__ import annotations

from pathlib import Path

import pytest

from flightwatch.cli import main


@pytest.fixture
def environment(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHTWATCH_DATA", str(tmp_path))
    monkeypatch.setenv("FLIGHTWATCH_STORE_URL", store_url)
    monkeypatch.delenv("FLIGHTWATCH_RECORDS_URL", raising=False)


@pytest.mark.usefixtures("environment")
def test_migrates_and_then_has_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate"]) == 0
    assert main(["migrate"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "records: 0 -> 0001"
    assert lines[2] == "records: already at 0001"


@pytest.mark.usefixtures("environment")
def test_check_changes_nothing_and_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--check"]) == 2
    assert main(["migrate", "--check"]) == 2

    assert "is at version 0, this flightwatch wants 0001; run `flightwatch migrate`" in capsys.readouterr().err


@pytest.mark.usefixtures("environment")
def test_check_is_content_after_a_migration() -> None:
    main(["migrate"])

    assert main(["migrate", "--check"]) == 0


@pytest.mark.usefixtures("environment")
def test_a_store_that_does_not_answer_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLIGHTWATCH_STORE_URL", "http://127.0.0.1:1")

    assert main(["migrate"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("flightwatch: the telemetry store does not answer at http://127.0.0.1:1")
