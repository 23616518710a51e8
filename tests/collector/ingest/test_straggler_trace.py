from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.errors import DamagedFileError, UnknownFileKindError
from collector.ingest.kinds import read_path
from collector.ingest.straggler_trace import OPTYPES, read


def columns() -> dict[str, pa.Array]:
    n_rows = 40
    rank = np.arange(n_rows) % 4
    return {
        "dp_rank": pa.array(rank, pa.int8()),
        "stage": pa.array(np.zeros(n_rows), pa.int8()),
        "rank": pa.array(rank, pa.int16()),
        "step": pa.array(np.arange(n_rows) // 4, pa.int64()),
        "optype": pa.array(["forward-compute"] * n_rows).dictionary_encode(),
        "start_ts": pa.array(np.zeros(n_rows), pa.float32()),
        "duration": pa.array(np.ones(n_rows), pa.float32()),
        "seq_id": pa.array(np.zeros(n_rows), pa.int32()),
        "mc": pa.array(np.zeros(n_rows), pa.int8()),
        "mb_id": pa.array(np.zeros(n_rows), pa.int8()),
        "gmc": pa.array(np.zeros(n_rows), pa.int16()),
    }


def write(path: Path, **changed: pa.Array | None) -> Path:
    table = {name: values for name, values in {**columns(), **changed}.items() if values is not None}
    pq.write_table(pa.table(table), path)
    return path


def test_reads_every_row(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "trace-X.parquet"))

    assert (trace.name, len(trace.rank), OPTYPES[trace.optype[0]]) == ("trace-X", 40, "forward-compute")


def test_names_the_missing_columns(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="columns are missing: duration, mb_id"):
        read(write(tmp_path / "t.parquet", duration=None, mb_id=None))


@pytest.mark.parametrize(
    ("value", "problem"), [(np.nan, "are not numbers"), (-1.0, "are negative"), (np.inf, "are infinite")]
)
def test_counts_times_that_cannot_be_and_says_where(tmp_path: Path, value: float, problem: str) -> None:
    durations = np.ones(40, dtype=np.float32)
    durations[[7, 9]] = value

    with pytest.raises(DamagedFileError, match=f"duration: 2 of 40 values {problem}, the first in row 7"):
        read(write(tmp_path / "t.parquet", duration=pa.array(durations)))


def test_refuses_text_where_numbers_belong(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="column rank holds string"):
        read(write(tmp_path / "t.parquet", rank=pa.array(["a"] * 40)))


def test_refuses_a_rank_at_two_places(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="rank 0 appears at more than one position"):
        read(write(tmp_path / "t.parquet", rank=pa.array(np.zeros(40), pa.int16())))


def test_refuses_ids_that_no_job_has(tmp_path: Path) -> None:
    steps = np.zeros(40)
    steps[5] = 1e300

    with pytest.raises(DamagedFileError, match="column step: 1 of 40 values is too large, the first in row 5"):
        read(write(tmp_path / "t.parquet", step=pa.array(steps)))


def test_refuses_a_column_that_appears_twice(tmp_path: Path) -> None:
    table = pa.table(columns())
    pq.write_table(table.append_column("rank", table["rank"]), tmp_path / "t.parquet")

    with pytest.raises(DamagedFileError, match="columns appear more than once: rank"):
        read(tmp_path / "t.parquet")


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32(), pa.int64(), pa.uint16()])
def test_whole_numbers_may_be_of_any_type(tmp_path: Path, type_: pa.DataType) -> None:
    names = ("dp_rank", "stage", "rank", "step", "seq_id", "mc", "mb_id", "gmc")

    trace = read(write(tmp_path / "t.parquet", **{name: columns()[name].cast(type_) for name in names}))

    assert (trace.rank.dtype.name, trace.rank.tolist()) == ("int64", [0, 1, 2, 3] * 10)


def test_leaves_out_unknown_ops_and_says_so(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "t.parquet", optype=pa.array(["forward-compute"] * 39 + ["novel"])))

    assert (len(trace.rank), trace.unknown_optypes) == (39, ("novel",))


@pytest.mark.parametrize("keep", [0.1, 0.6, 0.99])
def test_a_truncated_file_is_damaged(tmp_path: Path, keep: float) -> None:
    path = write(tmp_path / "t.parquet")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])

    with pytest.raises(DamagedFileError, match="truncated or corrupt parquet"):
        read_path(path)


def test_an_empty_file_and_an_empty_table_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "nothing").write_bytes(b"")
    pq.write_table(pa.table(columns()).slice(0, 0), tmp_path / "none.parquet")

    with pytest.raises(DamagedFileError, match="the file is empty"):
        read_path(tmp_path / "nothing")
    with pytest.raises(DamagedFileError, match="holds no rows"):
        read_path(tmp_path / "none.parquet")


def test_unknown_kinds_are_named_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")

    for name in ("notes.txt", "other.parquet", "absent"):
        with pytest.raises(UnknownFileKindError):
            read_path(tmp_path / name)
