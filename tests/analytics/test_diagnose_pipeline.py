"""The verb on synthetic pipeline traces with known truth: what it must say, and what it must not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flightwatch.cli import main
from tests.analytics.pipeline_trace import columns, keep, write

HEAVY_LAST = (1.0, 1.0, 1.0, 1.65)  # S = 1.17 with four micro-batches


class Verdict:
    def __init__(self, code: int, report: dict[str, Any]) -> None:
        self.code = code
        self.findings = [(f["kind"], f["cause"], f["entity"], f["ranks"]) for f in report["findings"]]
        self.ranks = [f["ranks"] for f in report["findings"] if f["kind"] == "slow_rank"]
        self.costs = [f["cost"]["slowdown"] for f in report["findings"]]
        self.coverage = report["coverage"]


@pytest.fixture
def diagnose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(table: Mapping[str, pa.Array]) -> Verdict:
        code = main(["diagnose", str(write(tmp_path / "trace.parquet", table)), "--json"])
        return Verdict(code, json.loads(capsys.readouterr().out))

    return run


HEAVY: list[tuple[str, str, str, list[int]]] = [("imbalance", "stage_partition", "stage:3", [])]


@pytest.mark.parametrize(("noise", "seed"), [(0.005, 0), (0.01, 1), (0.03, 2)])
def test_a_heavy_last_stage_is_the_partition_and_no_machine(diagnose: Any, noise: float, seed: int) -> None:
    verdict = diagnose(columns(stages=HEAVY_LAST, noise=noise, seed=seed))

    assert (verdict.code, verdict.findings) == (1, HEAVY)
    assert verdict.costs[0] == pytest.approx(verdict.coverage["what_if"]["slowdown"], rel=0.03)


@pytest.mark.parametrize("factor", [1.05, 1.2, 1.5])
@pytest.mark.parametrize("rank", [0, 2, 7])
def test_one_slow_rank_beside_a_heavy_stage_is_named_alone(diagnose: Any, rank: int, factor: float) -> None:
    verdict = diagnose(columns(stages=HEAVY_LAST, slow={rank: factor}, seed=rank))

    assert verdict.ranks == [[rank]]
    assert [finding for finding in verdict.findings if finding[0] != "slow_rank"] in ([], HEAVY)


def test_a_slow_rank_costs_what_healing_it_would_save(diagnose: Any) -> None:
    healthy = diagnose(columns(dp=4, noise=0.005)).coverage["what_if"]["seconds_per_step"]

    verdict = diagnose(columns(dp=4, noise=0.005, slow={5: 1.5}))

    truth = verdict.coverage["what_if"]["seconds_per_step"] / healthy
    assert verdict.ranks == [[5]]
    assert verdict.costs == [pytest.approx(truth, rel=0.03)]


def test_equal_ranks_are_healthy_even_without_any_noise(diagnose: Any) -> None:
    verdict = diagnose(columns(noise=0.0))

    assert (verdict.code, verdict.findings, verdict.coverage["insufficient_evidence"]) == (0, [], [])


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"dp": 1, "pp": 1}, "rank 0 had no peer of the same role to be compared with"),
        ({"dp": 1, "stages": HEAVY_LAST}, "ranks 0, 1, 2, 3 had no peer of the same role to be compared with"),
        ({"n_steps": 1, "slow": {3: 2.0}}, "1 step, and 8 are needed to tell what persists from a burst"),
    ],
)
def test_what_cannot_be_compared_is_no_verdict(diagnose: Any, shape: dict[str, Any], reason: str) -> None:
    verdict = diagnose(columns(**shape))

    assert (verdict.code, verdict.findings) == (0, [])
    assert verdict.coverage["insufficient_evidence"] == [reason]


def test_a_person_is_told_what_could_not_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["diagnose", str(write(tmp_path / "trace.parquet", columns(dp=1, pp=1, n_steps=9)))])

    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        "Nothing was found in trace: 1 rank, steps 0 to 8, but not everything could be judged.",
        "Insufficient evidence: rank 0 had no peer of the same role to be compared with.",
    ]


def test_a_missing_rank_changes_no_verdict_and_is_told(diagnose: Any) -> None:
    table = columns(stages=HEAVY_LAST)

    verdict = diagnose(keep(table, table["rank"].to_numpy() != 5))

    assert (verdict.code, verdict.findings) == (1, HEAVY)
    assert verdict.coverage["places_without_rank"] == [[1, 1]]
    assert verdict.coverage["insufficient_evidence"] == ["rank 1 had no peer of the same role to be compared with"]


def interleaved(table: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the trace with its four micro-batches as two of each of two chunks."""
    micro = table["mb_id"].to_numpy()
    is_compute = np.char.endswith(np.array(table["optype"].to_pylist()), "compute")
    chunk = np.where(is_compute, micro // 2, -1)
    return {**table, "mc": pa.array(chunk), "mb_id": pa.array(np.where(is_compute, micro % 2, -1))}


def with_unknown_op(table: dict[str, pa.Array]) -> dict[str, pa.Array]:
    names = ["novel" if name == "gc" else name for name in table["optype"].to_pylist()]
    return {**table, "optype": pa.array(names)}


def as_floats(table: dict[str, pa.Array]) -> dict[str, pa.Array]:
    return {name: column if name == "optype" else column.cast(pa.float64()) for name, column in table.items()}


def with_sparse_ids(table: dict[str, pa.Array]) -> dict[str, pa.Array]:
    return {**table, "mb_id": pa.array(table["mb_id"].to_numpy().astype(np.int64) * 500_000_000)}


@pytest.mark.parametrize("changed", [interleaved, with_unknown_op, as_floats, with_sparse_ids])
def test_the_form_of_a_trace_changes_no_verdict(diagnose: Any, changed: Any) -> None:
    table = columns(stages=HEAVY_LAST, slow={4: 1.3})

    assert diagnose(changed(table)).ranks == diagnose(table).ranks == [[4]]


def test_a_folder_is_one_report_on_its_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "first.parquet", columns(slow={2: 1.3}))
    write(tmp_path / "second.parquet", columns(dp=1))
    (tmp_path / "meta-first.yaml").write_text("dp_size: 2")

    code = main(["diagnose", str(tmp_path), "--json"])
    report = json.loads(capsys.readouterr().out)
    main(["diagnose", str(tmp_path)])
    text = capsys.readouterr().out

    assert (code, [f["id"] for f in report["findings"]]) == (1, ["first/slow_rank/compute/rank:2"])
    assert (report["input"]["kind"], report["input"]["ranks"]) == ("folder", 12)
    assert report["coverage"]["skipped_files"] == [str(tmp_path / "meta-first.yaml")]
    assert text.startswith("CRITICAL slow_rank (compute): first: rank 2 takes")
    assert "Insufficient evidence: second: ranks 0, 1, 2, 3 had no peer" in text
    assert "meta-first.yaml: unknown file kind" in text


def test_equal_halves_are_told_and_neither_is_picked(diagnose: Any) -> None:
    verdict = diagnose(columns(dp=4, pp=1, slow={1: 1.3, 2: 1.3}))

    assert (verdict.code, verdict.findings) == (0, [])
    (reason,) = verdict.coverage["insufficient_evidence"]
    assert reason.startswith("ranks 1, 2 differ from as many peers of the same role")
