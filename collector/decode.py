"""Turns a frame from the wire into columns, or says which of its fields is wrong. Pure; no object per record.

Limits: a row's time lies within a day before and ten years after the start of its process, and one frame's times span
at most 31 days, because the tables are partitioned by day and one insert may touch 100 partitions (the default).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from collector.epochs import MAX_OP_ID, UNKNOWN, Epoch, EpochBook
from collector.errors import MalformedBatchError
from flightwatch._layout import RECORD_BYTES, RECORD_DTYPE
from flightwatch._ops import KINDS
from flightwatch.wire import flightwatch_pb2 as wire
from flightwatch.wire.limits import MAX_ATTEMPT, MAX_NAME, MAX_RUN, MAX_TEXT, MAX_WORLD_SIZE

PROTOCOL = 1
DAY_NS = 86_400 * 10**9
MAX_SPAN_NS = 31 * DAY_NS
MAX_LIFE_NS = 3_660 * DAY_NS
EARLIEST_NS = 946_684_800 * 10**9  # 2000-01-01
LATEST_NS = 4_102_444_800 * 10**9  # 2100-01-01
LOW_24_BITS = 0xFFFFFF
ENDS = ("clean", "lost")

# As the telemetry client takes them: arrays, lists, or (codes, words) with row i = words[codes[i]].
Columns = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """A frame's rows by table, and what it says about processes.

    `names` holds op descriptors by (run, key); `last_steps` the highest step by run.
    """

    number: int
    sent_unix_ns: int
    tables: dict[str, Columns] = field(default_factory=dict)
    names: dict[tuple[str, int], wire.OpDescriptor] = field(default_factory=dict)
    starts: tuple[wire.RankStart, ...] = ()
    ends: tuple[wire.RankEnd, ...] = ()
    last_steps: dict[str, int] = field(default_factory=dict)
    n_rows: int = 0


def check_hello(hello: wire.Hello) -> None:
    """Raise MalformedBatchError if a stream's first message cannot be accepted."""
    if hello.protocol != PROTOCOL:
        raise MalformedBatchError("hello.protocol", f"{hello.protocol} is not spoken here, only {PROTOCOL}")
    if not 0 < len(hello.node) <= MAX_NAME:
        raise MalformedBatchError("hello.node", f"has {len(hello.node)} characters, not 1 to {MAX_NAME}")
    _check_no_nul("hello.node", hello.node)


def decode(frame: wire.Frame, book: EpochBook, *, now_ns: int) -> DecodedFrame:
    """Return the frame's columns, and enter its starts and descriptors into the book.

    Args:
        frame: as it came.
        book: what the stream has said before; changed.
        now_ns: unix time of the receipt, kept with gaps.

    Raises:
        MalformedBatchError: a field breaks the contract; nothing of the frame may be used.
    """
    for index, start in enumerate(frame.starts):
        _check_start(f"starts[{index}]", start)
        book.begin(start)
    names = _learn_ops(frame.ops, book)
    tables: dict[str, Columns] = {}
    last_steps: dict[str, int] = {}
    if frame.slices:
        tables["ops"], last_steps = _decode_slices(frame.slices, book)
    if frame.cells:
        tables["cells"] = _decode_cells(frame.cells, book)
        codes, words = tables["cells"]["run"]
        for run, step in _highest_steps(codes, words, tables["cells"]["step"]).items():
            last_steps[run] = max(step, last_steps.get(run, step))
    if frame.metrics:
        tables["metrics"] = _decode_metrics(frame.metrics)
    if frame.gaps:
        tables["gaps"] = _decode_gaps(frame.gaps, book, now_ns)
    for index, end in enumerate(frame.ends):
        _check_end(f"ends[{index}]", end, book)
    return DecodedFrame(
        number=frame.frame,
        sent_unix_ns=frame.sent_unix_ns,
        tables=tables,
        names=names,
        starts=tuple(frame.starts),
        ends=tuple(frame.ends),
        last_steps=last_steps,
        n_rows=sum(count_rows(columns) for columns in tables.values()) + len(names) + len(frame.starts),
    )


def count_rows(columns: Mapping[str, Any]) -> int:
    """Return how many rows the columns have."""
    first = next(iter(columns.values()))
    return len(first[0]) if isinstance(first, tuple) else len(first)


def _check_start(field_path: str, start: wire.RankStart) -> None:
    checks = (
        ("epoch", start.epoch != 0, "is 0"),
        ("run", 0 < len(start.run) <= MAX_RUN, f"has {len(start.run)} characters, not 1 to {MAX_RUN}"),
        ("node", 0 < len(start.node) <= MAX_NAME, f"has {len(start.node)} characters, not 1 to {MAX_NAME}"),
        ("world_size", 0 < start.world_size <= MAX_WORLD_SIZE, f"{start.world_size} is not in 1..{MAX_WORLD_SIZE}"),
        ("rank", start.rank < start.world_size, f"{start.rank} is not below world_size {start.world_size}"),
        ("local_rank", start.local_rank < start.world_size, f"{start.local_rank} is not below the world size"),
        ("attempt", start.attempt <= MAX_ATTEMPT, f"{start.attempt} is too large"),
        ("start_unix_ns", EARLIEST_NS <= start.start_unix_ns < LATEST_NS, f"{start.start_unix_ns} is not a time"),
        ("start_monotonic_ns", 0 <= start.start_monotonic_ns < 1 << 62, f"{start.start_monotonic_ns} is not a time"),
    )
    for name, holds, problem in checks:
        if not holds:
            raise MalformedBatchError(f"{field_path}.{name}", problem)
    for name in ("run", "node", "run_name", "framework"):
        _check_no_nul(f"{field_path}.{name}", getattr(start, name))


def _check_no_nul(field_path: str, text: str) -> None:
    if "\0" in text:  # PostgreSQL has no text that holds one
        raise MalformedBatchError(field_path, "holds a NUL")


def _check_end(field_path: str, end: wire.RankEnd, book: EpochBook) -> None:
    _known(field_path, end.epoch, book)
    if end.how not in ENDS:
        raise MalformedBatchError(f"{field_path}.how", f"{end.how!r} is none of {', '.join(ENDS)}")
    if not EARLIEST_NS <= end.unix_ns < LATEST_NS:
        raise MalformedBatchError(f"{field_path}.unix_ns", f"{end.unix_ns} is not a time")
    if end.records_written >= 1 << 62:
        raise MalformedBatchError(f"{field_path}.records_written", f"{end.records_written} is too large")


def _learn_ops(ops: Iterable[wire.OpDescriptor], book: EpochBook) -> dict[tuple[str, int], wire.OpDescriptor]:
    names = {}
    for index, op in enumerate(ops):
        path = f"ops[{index}]"
        epoch = _known(path, op.epoch, book)
        if op.op > MAX_OP_ID:
            raise MalformedBatchError(f"{path}.op", f"{op.op} is above {MAX_OP_ID}")
        if op.op_key == UNKNOWN:
            raise MalformedBatchError(f"{path}.op_key", "is 0")
        if op.kind not in KINDS:
            raise MalformedBatchError(f"{path}.kind", f"{op.kind!r} is none of {', '.join(KINDS)}")
        if op.size_class > 255:
            raise MalformedBatchError(f"{path}.size_class", f"{op.size_class} is above 255")
        for name in ("name", "module", "group", "dtype", "backend"):
            if len(getattr(op, name)) > MAX_TEXT:
                raise MalformedBatchError(f"{path}.{name}", f"has more than {MAX_TEXT} characters")
        epoch.learn(op.op, op.op_key)
        names[epoch.run, op.op_key] = op
    return names


def _known(field_path: str, epoch: int, book: EpochBook) -> Epoch:
    found = book.find(epoch)
    if found is None:
        raise MalformedBatchError(f"{field_path}.epoch", f"{epoch:016x} was not started on this stream")
    return found


def _decode_slices(slices: Sequence[wire.Slice], book: EpochBook) -> tuple[Columns, dict[str, int]]:
    """Return the columns of table ops and the highest step by run. One set of array operations serves all slices."""
    epochs: list[Epoch] = []
    bodies: list[bytes] = []
    for index, part in enumerate(slices):
        path = f"slices[{index}]"
        epochs.append(_known(path, part.epoch, book))
        body = part.records
        if len(body) % RECORD_BYTES:
            raise MalformedBatchError(f"{path}.records", f"{len(body)} bytes are not a multiple of {RECORD_BYTES}")
        if part.first_record >= 1 << 62:
            raise MalformedBatchError(f"{path}.first_record", f"{part.first_record} is too large")
        bodies.append(body)
    counts = np.array([len(body) // RECORD_BYTES for body in bodies])
    records = np.frombuffer(b"".join(bodies), RECORD_DTYPE)
    owner = np.repeat(np.arange(len(slices)), counts)
    _check_rows("records", owner, records["lap_op"] & 0xFF == records["aux_lap"] >> 24, "a record's two laps differ")

    firsts = np.array([part.first_record for part in slices], np.uint64)
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    start_ns = records["start_ns"] + np.array([epoch.offset_ns for epoch in epochs], np.int64)[owner]
    _check_times(start_ns, np.array([epoch.started_ns for epoch in epochs], np.int64)[owner], owner)
    codes, words = _encode([epoch.run for epoch in epochs])
    run_codes = codes[owner]
    columns: Columns = {
        "run": (run_codes, words),
        "op": _keys_of(records["lap_op"] >> 8, epochs, owner),
        "step": np.ascontiguousarray(records["step"]),
        "rank": np.array([epoch.rank for epoch in epochs], np.uint32)[owner],
        "epoch": np.array([part.epoch for part in slices], np.uint64)[owner],
        "record": firsts[owner] + (np.arange(len(records)) - begins).astype(np.uint64),
        "start_ns": start_ns,
        "value": np.ascontiguousarray(records["value"]),
        "seq": np.ascontiguousarray(records["seq"]),
        "micro": records["aux_lap"] & LOW_24_BITS,
    }
    return columns, _highest_steps(run_codes, words, columns["step"])


def _highest_steps(codes: npt.NDArray[np.int32], words: list[str], steps: npt.NDArray[np.uint32]) -> dict[str, int]:
    if not len(steps):
        return {}
    if len(words) == 1:
        return {words[0]: int(steps.max())}
    return {word: int(steps[codes == code].max()) for code, word in enumerate(words) if (codes == code).any()}


def _keys_of(
    ops: npt.NDArray[np.integer[Any]], epochs: Sequence[Epoch], owner: npt.NDArray[np.intp]
) -> npt.NDArray[np.uint64]:
    """Return the key of each record's op id: the tables of all epochs in one array, each at its own base."""
    distinct = list({id(epoch): epoch for epoch in epochs}.values())
    lengths = {id(epoch): epoch.highest_op + 1 for epoch in distinct}
    bases = dict(zip(lengths, np.cumsum([0, *lengths.values()]).tolist(), strict=False))
    length = np.array([lengths[id(epoch)] for epoch in epochs])[owner]
    _check_rows("records", owner, ops < length, "a record's op has no descriptor")
    table = np.concatenate([epoch.keys[: epoch.highest_op + 1] for epoch in distinct])
    keys: npt.NDArray[np.uint64] = table[np.array([bases[id(epoch)] for epoch in epochs])[owner] + ops]
    _check_rows("records", owner, keys != UNKNOWN, "a record's op has no descriptor")
    return keys


def _check_times(
    start_ns: npt.NDArray[np.int64], started_ns: npt.NDArray[np.int64], owner: npt.NDArray[np.intp]
) -> None:
    age = start_ns - started_ns
    _check_rows(
        "records", owner, (age >= -DAY_NS) & (age <= MAX_LIFE_NS), "a record's start lies outside its process's life"
    )
    if len(age):
        _check_span("slices", start_ns)


def _check_span(path: str, times: npt.NDArray[np.int64]) -> None:
    if int(times.max()) - int(times.min()) > MAX_SPAN_NS:
        raise MalformedBatchError(path, "its times span more than 31 days")


def _check_rows(name: str, owner: npt.NDArray[np.intp], good: npt.NDArray[np.bool_], problem: str) -> None:
    if not good.all():
        raise MalformedBatchError(f"slices[{int(owner[int(np.argmin(good))])}].{name}", problem)


def _encode(words: Sequence[str]) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return (codes, distinct words)."""
    index: dict[str, int] = {}
    codes = [index.setdefault(word, len(index)) for word in words]
    return np.array(codes, np.int32), list(index)


def _decode_cells(cells: Sequence[wire.OpenCell], book: EpochBook) -> Columns:
    epochs = [_known(f"cells[{index}]", cell.epoch, book) for index, cell in enumerate(cells)]
    ops, starts = [], []
    for index, (cell, epoch) in enumerate(zip(cells, epochs, strict=True)):
        if not EARLIEST_NS <= cell.seen_unix_ns < LATEST_NS:
            raise MalformedBatchError(f"cells[{index}].seen_unix_ns", f"{cell.seen_unix_ns} is not a time")
        if not 0 <= cell.start_monotonic_ns < 1 << 62:
            raise MalformedBatchError(f"cells[{index}].start_monotonic_ns", f"{cell.start_monotonic_ns} is not a time")
        key = epoch.key_of(cell.op) if cell.start_monotonic_ns else 0
        if cell.start_monotonic_ns and key == UNKNOWN:
            raise MalformedBatchError(f"cells[{index}].op", f"{cell.op} has no descriptor")
        ops.append(key)
        starts.append(cell.start_monotonic_ns + epoch.offset_ns if cell.start_monotonic_ns else 0)
    seen = np.array([cell.seen_unix_ns for cell in cells], np.int64)
    _check_span("cells", seen)
    return {
        "run": _encode([epoch.run for epoch in epochs]),
        "rank": np.array([epoch.rank for epoch in epochs], np.uint32),
        "epoch": np.array([cell.epoch for cell in cells], np.uint64),
        "thread": np.array([cell.thread for cell in cells], np.uint64),
        "seen_ns": seen,
        "op": np.array(ops, np.uint64),
        "step": np.array([cell.step for cell in cells], np.uint32),
        "start_ns": np.array(starts, np.int64),
    }


def _decode_metrics(metrics: Sequence[wire.Metric]) -> Columns:
    for index, metric in enumerate(metrics):
        _check_metric(f"metrics[{index}]", metric)
    counts = np.array([len(metric.unix_ns) for metric in metrics])
    times = np.concatenate([np.array(metric.unix_ns, np.int64) for metric in metrics])
    if len(times):
        _check_span("metrics", times)
    columns: Columns = {}
    for column, words in (
        ("node", [metric.node for metric in metrics]),
        ("device", [metric.device for metric in metrics]),
        ("metric", [metric.name for metric in metrics]),
    ):
        codes, distinct = _encode(words)
        columns[column] = (np.repeat(codes, counts), distinct)
    columns["time_ns"] = times
    columns["value"] = np.concatenate([np.array(metric.value, np.float64) for metric in metrics])
    return columns


def _check_metric(path: str, metric: wire.Metric) -> None:
    for name in ("node", "name"):
        if not 0 < len(getattr(metric, name)) <= MAX_NAME:
            raise MalformedBatchError(f"{path}.{name}", f"does not have 1 to {MAX_NAME} characters")
    if len(metric.device) > MAX_NAME:
        raise MalformedBatchError(f"{path}.device", f"has more than {MAX_NAME} characters")
    if len(metric.unix_ns) != len(metric.value):
        raise MalformedBatchError(f"{path}.value", f"{len(metric.value)} values for {len(metric.unix_ns)} times")
    if any(not EARLIEST_NS <= unix_ns < LATEST_NS for unix_ns in metric.unix_ns):
        raise MalformedBatchError(f"{path}.unix_ns", "holds something that is not a time")


def _decode_gaps(gaps: Sequence[wire.Gap], book: EpochBook, now_ns: int) -> Columns:
    epochs = [_known(f"gaps[{index}]", gap.epoch, book) for index, gap in enumerate(gaps)]
    for index, gap in enumerate(gaps):
        if not 0 < len(gap.reason) <= MAX_NAME:
            raise MalformedBatchError(f"gaps[{index}].reason", f"does not have 1 to {MAX_NAME} characters")
        if gap.last_record < gap.first_record:
            raise MalformedBatchError(f"gaps[{index}].last_record", "lies before first_record")
        if gap.count > gap.last_record - gap.first_record + 1:
            raise MalformedBatchError(f"gaps[{index}].count", "is more than first_record..last_record holds")
    return {
        "run": _encode([epoch.run for epoch in epochs]),
        "rank": np.array([epoch.rank for epoch in epochs], np.uint32),
        "epoch": np.array([gap.epoch for gap in gaps], np.uint64),
        "reason": _encode([gap.reason for gap in gaps]),
        "first_record": np.array([gap.first_record for gap in gaps], np.uint64),
        "last_record": np.array([gap.last_record for gap in gaps], np.uint64),
        "count": np.array([gap.count for gap in gaps], np.uint64),
        "seen_ns": np.full(len(gaps), now_ns, np.int64),
    }
