from __future__ import annotations

import json
from pathlib import Path

import pytest

from flightwatch.cli import main
from tests.analytics.shared_data import straggler_trace


def test_names_exactly_the_slow_worker_of_a_public_trace(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["diagnose", str(straggler_trace("AR")), "--json"])

    report = json.loads(capsys.readouterr().out)
    (finding,) = report["findings"]
    assert (code, report["schema"]) == (1, "flightwatch.findings/1")
    assert (finding["kind"], finding["cause"], finding["ranks"]) == ("slow_rank", "compute", [0])
    assert finding["cost"]["slowdown"] == pytest.approx(1.97, abs=0.02)


def test_blames_no_machine_for_unequal_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["diagnose", str(straggler_trace("SE")), "--json"])

    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (code, finding["kind"], finding["cause"]) == (1, "imbalance", "sequence_length")
    assert (finding["ranks"], finding["nodes"], finding["evict"]) == ([], [], False)


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello")

    code = main(["diagnose", str(tmp_path / "notes.txt")])

    captured = capsys.readouterr()
    assert (code, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert "unknown file kind" in captured.err


def test_says_verdict_reason_and_next_step_to_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", str(straggler_trace("AR"))])

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("CRITICAL slow_rank (compute): rank 0 takes")
    assert any(line.startswith("  Why: ") for line in lines)
    assert any(line.startswith("  Next: ") for line in lines)
