"""Columns as callers have them, turned into Arrow without a Python object per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# A numpy array; a list of str, numbers or lists of whole numbers; or (codes, words): row i is words[codes[i]].
Column = npt.NDArray[Any] | Sequence[Any] | tuple[npt.NDArray[np.integer[Any]], Sequence[str]]


def to_arrow(columns: Mapping[str, Column]) -> pa.Table:
    """Return the columns as one table; strings become dictionary columns, which ClickHouse reads as LowCardinality.

    Raises:
        ValueError: columns differ in length.
    """
    arrays = {name: _to_array(column) for name, column in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns differ in length: {lengths}")
    return pa.table(arrays)


def _to_array(column: Column) -> pa.Array:
    if isinstance(column, np.ndarray):
        return _from_strings(column.tolist()) if column.dtype.kind in "UO" else pa.array(column)
    if isinstance(column, tuple) and len(column) == 2 and isinstance(column[0], np.ndarray):
        codes, words = column
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(list(words), pa.string()))
    rows = list(column)
    if rows and isinstance(rows[0], str):
        return _from_strings(rows)
    if rows and isinstance(rows[0], list | tuple | np.ndarray):
        return pa.array([list(row) for row in rows], pa.list_(pa.uint32()))
    try:
        return pa.array(rows)
    except OverflowError:  # whole numbers above 2**63, such as epochs and op keys
        return pa.array(rows, pa.uint64())


def _from_strings(rows: list[str]) -> pa.Array:
    return pa.array(rows, pa.string()).dictionary_encode()
