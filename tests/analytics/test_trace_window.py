from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from analytics.trace_window import window_of
from analytics.window import Window
from collector.ingest.straggler_trace import read
from tests.analytics.pipeline_trace import columns, keep, write


def window(path: Path, table: dict[str, pa.Array]) -> Window:
    return window_of(read(write(path / "trace.parquet", table)))


def naive(table: dict[str, pa.Array], rank: int, step: int, *optypes: str) -> float:
    rows = pa.table(table).to_pylist()
    return sum(float(r["duration"]) for r in rows if (r["rank"], r["step"]) == (rank, step) and r["optype"] in optypes)


def test_each_phase_sums_its_ops_and_communication_keeps_its_waits(tmp_path: Path) -> None:
    table = columns(dp=2, pp=2, n_steps=3)
    communication = sorted(
        set(table["optype"].to_pylist()) - {"forward-compute", "backward-compute", "optimizer", "gc"}
    )

    seen = window(tmp_path, table)

    assert (seen.run, seen.steps.tolist(), seen.topology.ranks.tolist()) == ("trace", [0, 1, 2], [0, 1, 2, 3])
    for phase, optypes in (
        ("forward", ["forward-compute"]),
        ("backward", ["backward-compute"]),
        ("optimizer", ["optimizer"]),
        ("collective", communication),
    ):
        expected = [[naive(table, rank, step, *optypes) for step in range(3)] for rank in range(4)]
        np.testing.assert_allclose(seen.per_step(phase), expected, rtol=1e-6)


def test_ranks_stand_where_the_trace_says(tmp_path: Path) -> None:
    topology = window(tmp_path, columns(dp=2, pp=2, n_steps=1)).topology

    assert {name: values.tolist() for name, values in topology.coordinates.items()} == {
        "dp": [0, 0, 1, 1],
        "pp": [0, 1, 0, 1],
    }


def test_a_step_ends_with_its_last_op(tmp_path: Path) -> None:
    table = columns(dp=1, pp=2, n_steps=2)
    ends = table["start_ts"].to_numpy().astype(float) + table["duration"].to_numpy()

    seconds = window(tmp_path, table).per_step("step")

    last = [
        [ends[(table["rank"].to_numpy() == r) & (table["step"].to_numpy() == s)].max() for s in (0, 1)] for r in (0, 1)
    ]
    np.testing.assert_allclose(seconds, last, rtol=1e-6)


def test_each_chunk_has_micro_batches_of_its_own(tmp_path: Path) -> None:
    table = columns(dp=1, pp=1, n_steps=2)
    micro = table["mb_id"].to_numpy()
    two_chunks = {**table, "mc": pa.array(np.maximum(micro, 0) // 2), "mb_id": pa.array(np.maximum(micro, 0) % 2)}

    one, two = window(tmp_path, table), window(tmp_path, two_chunks)

    np.testing.assert_array_equal(one.seconds["forward"], two.seconds["forward"])


@pytest.mark.parametrize("factor", [1, 7, 500_000_000])
def test_micro_batches_take_room_by_their_number_and_not_by_their_names(tmp_path: Path, factor: int) -> None:
    table = columns(dp=2, pp=2, n_steps=2)

    seen = window(tmp_path, {**table, "mb_id": pa.array(table["mb_id"].to_numpy().astype(np.int64) * factor)})

    assert seen.seconds["forward"].shape == seen.seconds["backward"].shape == (4, 2, 4)


def test_what_a_rank_did_not_show_is_unknown_and_not_zero(tmp_path: Path) -> None:
    table = columns(dp=2, pp=2, n_steps=2)
    lost = (table["rank"].to_numpy() == 1) & (table["step"].to_numpy() == 1)

    seen = window(tmp_path, keep(table, ~lost))

    assert np.isnan(seen.per_step("forward")).tolist() == [
        [False, False],
        [False, True],
        [False, False],
        [False, False],
    ]
