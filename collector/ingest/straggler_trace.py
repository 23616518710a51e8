"""Reader of parquet op traces: one row per op of one rank in one step, times in seconds from the step's start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from collector.errors import DamagedFileError, UnknownFileKindError

KIND = "straggler-trace"
MAGIC = b"PAR1"
INTEGER_COLUMNS = ("dp_rank", "stage", "rank", "step", "seq_id", "mc", "mb_id", "gmc")
TIME_COLUMNS = ("start_ts", "duration")
COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", *TIME_COLUMNS, "seq_id", "mc", "mb_id", "gmc")
LARGEST_ID = 2**31 - 1  # of ranks, steps, ops; more comes from a damaged file, and would overflow keys made of them
MIN_COMMON_COLUMNS = 3  # a parquet file that shares fewer column names is some other table

FORWARD = "forward-compute"
BACKWARD = "backward-compute"
OPTYPES = (
    "params-all-gather",
    "forward-recv",
    FORWARD,
    "forward-send",
    "backward-recv",
    BACKWARD,
    "backward-send",
    "gc",
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "grads-reduce-scatter",
    "separate-grads-all-reduce",
    "optimizer-clip-main-grad",
    "optimizer",
)


@dataclass(frozen=True, slots=True)
class StragglerTrace:
    """The rows of one trace as columns, each (n_rows,).

    `optype` is an index into OPTYPES; `start_seconds` counts from the step's start; `chunk` and `micro` are -1
    where an op belongs to none. `unknown_optypes` names ops that were left out.
    """

    name: str
    dp: NDArray[np.int64]
    stage: NDArray[np.int64]
    rank: NDArray[np.int64]
    step: NDArray[np.int64]
    optype: NDArray[np.int64]
    start_seconds: NDArray[np.float64]
    duration_seconds: NDArray[np.float64]
    seq: NDArray[np.int64]
    chunk: NDArray[np.int64]
    micro: NDArray[np.int64]
    unknown_optypes: tuple[str, ...] = ()


def recognises(head: bytes) -> bool:
    """Return whether a file that begins with `head` may be a trace (it is parquet)."""
    return head.startswith(MAGIC)


def read(path: Path) -> StragglerTrace:
    """Return the trace in `path`.

    Raises:
        UnknownFileKindError: it is parquet, but another table.
        DamagedFileError: truncated, without rows, columns or compute ops, or with values that cannot be.
    """
    table = _table(path)
    numbers = {name: _integers(path, table, name) for name in INTEGER_COLUMNS}
    times = {name: _times(path, table, name) for name in TIME_COLUMNS}
    codes, unknown = _optypes(path, table)
    known = codes >= 0
    if not np.isin(codes, (OPTYPES.index(FORWARD), OPTYPES.index(BACKWARD))).any():
        raise DamagedFileError(f"{path}: holds no {FORWARD} and no {BACKWARD} ops")
    trace = StragglerTrace(
        name=path.stem,
        dp=numbers["dp_rank"][known],
        stage=numbers["stage"][known],
        rank=numbers["rank"][known],
        step=numbers["step"][known],
        optype=codes[known],
        start_seconds=times["start_ts"][known],
        duration_seconds=times["duration"][known],
        seq=numbers["seq_id"][known],
        chunk=numbers["mc"][known],
        micro=numbers["mb_id"][known],
        unknown_optypes=unknown,
    )
    _check_positions(path, trace)
    return trace


def _table(path: Path) -> pa.Table:
    try:
        # The footer first: it tells a truncated file from a foreign one. The bytes are checked by the read.
        file = pq.ParquetFile(path)
        columns = file.schema_arrow.names
    except (pa.ArrowException, OSError) as error:
        raise DamagedFileError(f"{path}: truncated or corrupt parquet ({_first_line(error)})") from error
    missing = [name for name in COLUMNS if name not in columns]
    if len(COLUMNS) - len(missing) < MIN_COMMON_COLUMNS:
        raise UnknownFileKindError(f"{path}: parquet, but not an op trace (needs columns {', '.join(COLUMNS)})")
    if missing:
        raise DamagedFileError(f"{path}: columns are missing: {', '.join(missing)}")
    repeated = [name for name in COLUMNS if columns.count(name) > 1]
    if repeated:
        raise DamagedFileError(f"{path}: columns appear more than once: {', '.join(repeated)}")
    try:
        table = file.read(columns=list(COLUMNS))  # pq.read_table would import pandas: seconds
    except (pa.ArrowException, OSError) as error:
        raise DamagedFileError(f"{path}: truncated or corrupt parquet ({_first_line(error)})") from error
    if table.num_rows == 0:
        raise DamagedFileError(f"{path}: holds no rows")
    return table


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _numbers(path: Path, table: pa.Table, name: str) -> NDArray[np.float64]:
    column = table[name]
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DamagedFileError(f"{path}: column {name} holds {column.type}, not numbers")
    return np.asarray(column.to_numpy(), dtype=np.float64)  # nulls become NaN


def _integers(path: Path, table: pa.Table, name: str) -> NDArray[np.int64]:
    values = _numbers(path, table, name)
    with np.errstate(invalid="ignore"):
        bad = ~(values == np.floor(values)) | np.isinf(values)
    if bad.any():
        raise DamagedFileError(
            f"{path}: column {name}: {_count(bad, 'is not a whole number', 'are not whole numbers')}"
        )
    if name in ("dp_rank", "stage", "rank", "step", "seq_id") and (values < 0).any():
        raise DamagedFileError(f"{path}: column {name}: {_count(values < 0, 'is negative', 'are negative')}")
    if (np.abs(values) > LARGEST_ID).any():
        raise DamagedFileError(
            f"{path}: column {name}: {_count(np.abs(values) > LARGEST_ID, 'is too large', 'are too large')}"
        )
    return values.astype(np.int64)


def _times(path: Path, table: pa.Table, name: str) -> NDArray[np.float64]:
    values = _numbers(path, table, name)
    for bad, one, many in (
        (np.isnan(values), "is not a number", "are not numbers"),
        (np.isinf(values), "is infinite", "are infinite"),
        (values < 0, "is negative", "are negative"),
    ):
        if bad.any():
            raise DamagedFileError(f"{path}: column {name}: {_count(bad, one, many)}")
    return values


def _count(bad: NDArray[np.bool_], one: str, many: str) -> str:
    n_bad = int(bad.sum())
    return f"{n_bad:,} of {len(bad):,} values {one if n_bad == 1 else many}, the first in row {int(np.argmax(bad)):,}"


def _optypes(path: Path, table: pa.Table) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    column = table["optype"]
    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(value_type) or pa.types.is_large_string(value_type)):
        raise DamagedFileError(f"{path}: column optype holds {column.type}, not names")
    names = column.cast(pa.string())
    if names.null_count:
        missing = np.asarray(names.is_null().to_numpy(), dtype=bool)
        raise DamagedFileError(f"{path}: column optype: {_count(missing, 'is missing', 'are missing')}")
    encoded = names.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    dictionary: Sequence[str] = encoded.dictionary.to_pylist()
    known = np.array([OPTYPES.index(name) if name in OPTYPES else -1 for name in dictionary], dtype=np.int64)
    unknown = tuple(sorted(name for name in dictionary if name not in OPTYPES))
    return known[encoded.indices.to_numpy(zero_copy_only=False)], unknown


def _check_positions(path: Path, trace: StragglerTrace) -> None:
    places = np.unique(np.stack([trace.rank, trace.dp, trace.stage], axis=1), axis=0)
    ranks, counts = np.unique(places[:, 0], return_counts=True)
    if (counts > 1).any():
        rank = int(ranks[np.argmax(counts > 1)])
        raise DamagedFileError(f"{path}: rank {rank} appears at more than one position (dp_rank, stage)")
