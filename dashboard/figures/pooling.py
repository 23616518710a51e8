"""Pooling by the worst: a picture of 10,000 ranks must not hide a bad one, so a cell shows its worst, never a mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Ranks in the order of the picture and where each row of it begins.

    `order` (n,) indices of ranks, node by node; `starts` (r,) positions in `order`; `labels` (r,) unique, unescaped.
    """

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    labels: tuple[str, ...]


def pool_worst(values: Floats, row_starts: NDArray[np.int64], column_starts: NDArray[np.int64]) -> Floats:
    """Return, per group of rows and columns, the value furthest from 0, its sign kept.

    Args:
        values: (n, m), logs of ratios; NaN = unknown.
        row_starts: (r,) ascending, first 0: where each group of rows begins.
        column_starts: (c,) likewise.

    Returns:
        (r, c); NaN only where every member is. Of two equal deviations the slower (positive) one.
    """
    highest = np.fmax.reduceat(np.fmax.reduceat(values, column_starts, axis=1), row_starts, axis=0)
    lowest = np.fmin.reduceat(np.fmin.reduceat(values, column_starts, axis=1), row_starts, axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(highest >= -lowest, highest, lowest)


def even_starts(length: int, most: int) -> NDArray[np.int64]:
    """Return where at most `most` groups of nearly equal size begin in `length` things."""
    groups = max(1, min(length, most))
    return (np.arange(groups, dtype=np.int64) * length) // groups


def group_rows(ranks: NDArray[np.int64], nodes: tuple[str, ...], most: int) -> RowGroups:
    """Return rows for `ranks`: one each if they are few, else one per node, else one per run of neighbouring nodes.

    Args:
        ranks: (n,) global ranks.
        nodes: (n,) their nodes.
        most: the most rows allowed.
    """
    number_of: dict[str, int] = {}
    node_index = np.array([number_of.setdefault(node, len(number_of)) for node in nodes], dtype=np.int64)
    order = np.lexsort((ranks, node_index))
    if len(ranks) <= most:
        labels = tuple(f"rank {ranks[i]} · {nodes[i]}" for i in order)
        return RowGroups(order, np.arange(len(ranks), dtype=np.int64), labels)
    first_of_node = np.flatnonzero(np.diff(node_index[order], prepend=-1))
    names = list(number_of)
    chosen = even_starts(len(names), most)
    ends = np.append(chosen[1:], len(names))
    starts = first_of_node[chosen]
    stops = np.append(starts[1:], len(ranks))
    labels = tuple(
        _group_label(names[first:end], ranks[order[start:stop]])
        for first, end, start, stop in zip(chosen, ends, starts, stops, strict=True)
    )
    return RowGroups(order, starts, labels)


def _group_label(nodes: list[str], ranks: NDArray[np.int64]) -> str:
    span = nodes[0] if len(nodes) == 1 else f"{nodes[0]} … {nodes[-1]}"
    return f"{span} · ranks {ranks.min()}-{ranks.max()}" if len(ranks) > 1 else f"{span} · rank {ranks[0]}"
