"""Frames of many streams put together into one batch: one set of columns per table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collector.decode import Columns, DecodedFrame
from flightwatch.wire import flightwatch_pb2 as wire


@dataclass(frozen=True, slots=True)
class Batch:
    """What is written in one go. `tables` are column sets by table; `names` op descriptors by (run, key)."""

    tables: dict[str, Columns]
    names: dict[tuple[str, int], wire.OpDescriptor]
    starts: tuple[wire.RankStart, ...]
    ends: tuple[wire.RankEnd, ...]
    last_steps: dict[str, int]
    nodes: frozenset[str]
    n_rows: int


def join(frames: Sequence[DecodedFrame], nodes: Iterable[str]) -> Batch:
    """Return the frames as one batch; `nodes` are those whose forwarders sent them."""
    parts: dict[str, list[Columns]] = {}
    names: dict[tuple[str, int], wire.OpDescriptor] = {}
    last_steps: dict[str, int] = {}
    for frame in frames:
        for table, columns in frame.tables.items():
            parts.setdefault(table, []).append(columns)
        names.update(frame.names)
        for run, step in frame.last_steps.items():
            last_steps[run] = max(step, last_steps.get(run, step))
    return Batch(
        tables={table: _join_columns(columns) for table, columns in parts.items()},
        names=names,
        starts=tuple(itertools.chain.from_iterable(frame.starts for frame in frames)),
        ends=tuple(itertools.chain.from_iterable(frame.ends for frame in frames)),
        last_steps=last_steps,
        nodes=frozenset(nodes),
        n_rows=sum(frame.n_rows for frame in frames),
    )


def _join_columns(parts: Sequence[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    return {name: _join_column([part[name] for part in parts]) for name in parts[0]}


def _join_column(columns: Sequence[Any]) -> Any:
    if not isinstance(columns[0], tuple):
        return np.concatenate(columns)
    index: dict[str, int] = {}
    recoded = []
    for codes, words in columns:
        here = np.array([index.setdefault(word, len(index)) for word in words], np.int32)
        recoded.append(here[codes] if len(here) else codes)
    return np.concatenate(recoded), list(index)
