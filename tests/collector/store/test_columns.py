from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from collector.store.telemetry.columns import to_arrow


def test_numbers_are_not_copied() -> None:
    values = np.arange(5, dtype=np.uint64)

    column = to_arrow({"value": values})["value"].chunk(0)

    assert column.buffers()[1].address == values.ctypes.data


def test_codes_and_words_become_a_dictionary() -> None:
    table = to_arrow({"run": (np.array([1, 0, 1]), ["a", "b"])})

    assert pa.types.is_dictionary(table.schema.field("run").type)
    assert table["run"].to_pylist() == ["b", "a", "b"]


def test_strings_become_a_dictionary() -> None:
    table = to_arrow({"run": ["a", "b", "a"], "node": np.array(["x", "y", "x"])})

    assert table["run"].chunk(0).dictionary.to_pylist() == ["a", "b"]
    assert table["node"].to_pylist() == ["x", "y", "x"]


def test_whole_numbers_keep_their_64_bits() -> None:
    assert to_arrow({"epoch": [2**64 - 1, 0]})["epoch"].to_pylist() == [2**64 - 1, 0]


def test_lists_become_arrays_even_when_empty() -> None:
    table = to_arrow({"members": [[], [1, 2]]})

    assert table.schema.field("members").type == pa.list_(pa.uint32())
    assert table["members"].to_pylist() == [[], [1, 2]]


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="columns differ in length"):
        to_arrow({"a": [1], "b": [1, 2]})
