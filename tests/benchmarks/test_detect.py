from __future__ import annotations

import json
import sys

import pytest

from benchmarks import detect


def test_times_each_detector_and_checks_what_it_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["detect", "--ranks", "256", "--repeats", "1", "--json"])

    code = detect.main()

    (line,) = capsys.readouterr().out.splitlines()
    rows = json.loads(line)["rows"]
    assert (code, [row["exact"] for row in rows]) == (0, [True] * 4)
    assert [(row["detector"], row["named"]) for row in rows] == [
        ("slow_rank", ["node:node-00021"]),
        ("imbalance", []),
        ("slow_rank", ["node:node-00021"]),
        ("imbalance", ["stage:3"]),
    ]
    assert all(row["seconds"] > 0 for row in rows)
