"""Enters runs, ranks and nodes into the records store: what began, ended, was heard. Everything may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, Table, bindparam, case, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from collector.store.records import Node, Rank, Run
from collector.store.records.run import ENDED, RUNNING
from collector.store.records.session import UnitOfWork
from flightwatch.wire import flightwatch_pb2 as wire

MAX_RUN_NAME = 200  # runs.name
MAX_FRAMEWORK = 100  # ranks.framework
MAX_REMEMBERED_STARTS = 100_000  # 300 bytes each; forgetting one costs an update that changes nothing
# Rows per statement, so that a run list of 10,000 ids stays below SQLite's limit on bound variables.
LOOKUP_ROWS = 500


class Registry:
    """The collector's writer of the records store. One thread at a time."""

    def __init__(self, engine: Engine, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._engine = engine
        self._now = now
        self._known: dict[int, bytes] = {}  # starts as last written, by epoch: a reconnection sends them all again

    def enter_starts(self, starts: Iterable[wire.RankStart]) -> None:
        """Insert or refresh the runs, nodes and ranks that these processes belong to."""
        fresh = {start.epoch: start for start in starts if self._known.get(start.epoch) != _fingerprint(start)}
        if not fresh:
            return
        now = self._now()
        runs = {start.run: _run_row(start, now) for start in fresh.values()}
        with UnitOfWork(self._engine, writing=True) as work:
            upsert(work.session, Run, list(runs.values()), keep=("state", "started_at", "last_step", "revision"))
            nodes = sorted({start.node for start in fresh.values()})
            upsert(work.session, Node, [_node_row(name, now) for name in nodes], keep=("first_seen_at",))
            upsert(work.session, Rank, [_rank_row(start) for start in fresh.values()], keep=("end",))
            for run in runs:
                _settle_state(work.session, run, now)
        if len(self._known) > MAX_REMEMBERED_STARTS:
            self._known.clear()
        self._known.update({epoch: _fingerprint(start) for epoch, start in fresh.items()})

    def enter_ends(self, ends: Sequence[wire.RankEnd]) -> None:
        """Mark processes as ended, and their runs when nobody of the newest attempt is left."""
        if not ends:
            return
        rows: list[dict[str, Any]] = [
            {
                "b_epoch": f"{end.epoch:016x}",
                "ended_at": _at(end.unix_ns),
                "end": end.how,
                "records_written": end.records_written,
            }
            for end in ends
        ]
        table = _table(Rank)
        with UnitOfWork(self._engine, writing=True) as work:
            work.session.connection().execute(
                update(table)
                .where(table.c.epoch == bindparam("b_epoch"))
                .values({name: bindparam(name) for name in ("ended_at", "end", "records_written")}),
                rows,
            )
            for run in _runs_of(work.session, [row["b_epoch"] for row in rows]):
                _settle_state(work.session, run, self._now())
        for end in ends:
            self._known.pop(end.epoch, None)

    def touch(self, last_steps: Mapping[str, int], nodes: Iterable[str]) -> None:
        """Note that runs got as far as these steps and that nodes were heard, both now."""
        now = self._now()
        with UnitOfWork(self._engine, writing=True) as work:
            for run, step in last_steps.items():
                work.session.execute(
                    update(Run)
                    .where(Run.id == run)
                    .values(last_seen_at=now, last_step=_greater(Run.last_step, step))
                    .execution_options(synchronize_session=False)
                )
            rows = [_node_row(name, now) for name in sorted(nodes)]
            upsert(work.session, Node, rows, keep=("first_seen_at",))


def upsert(session: Session, mapped: type[Any], rows: Sequence[dict[str, Any]], *, keep: Sequence[str]) -> None:
    """Insert rows, or update those whose primary key is there, all columns given but those in `keep`."""
    if not rows:
        return
    table = _table(mapped)
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    statement = insert(table)
    keys = [column.name for column in table.primary_key]
    changed = {name: statement.excluded[name] for name in rows[0] if name not in (*keys, *keep)}
    session.connection().execute(statement.on_conflict_do_update(index_elements=keys, set_=changed), list(rows))


def _settle_state(session: Session, run_id: str, now: datetime) -> None:
    """Set a run to running or ended: ended when no process of its newest attempt is without an end.

    Its world size is that attempt's, too: the starts of an older one may come later, from a spool.
    """
    newest = select(func.max(Rank.attempt)).where(Rank.run_id == run_id).scalar_subquery()
    alive = session.scalar(
        select(Rank.epoch).where(Rank.run_id == run_id, Rank.attempt == newest, Rank.ended_at.is_(None)).limit(1)
    )
    last_end = select(func.max(Rank.ended_at)).where(Rank.run_id == run_id, Rank.attempt == newest)
    sizes = select(func.max(Rank.world_size)).where(Rank.run_id == run_id, Rank.attempt == newest)
    values: dict[str, Any] = {"state": RUNNING, "ended_at": None, "world_size": session.scalar(sizes) or 0}
    if alive is None:
        values |= {"state": ENDED, "ended_at": session.scalar(last_end) or now}
    session.execute(update(Run).where(Run.id == run_id).values(**values).execution_options(synchronize_session=False))


def _runs_of(session: Session, epochs: Sequence[str]) -> set[str]:
    runs: set[str] = set()
    for begin in range(0, len(epochs), LOOKUP_ROWS):
        some = epochs[begin : begin + LOOKUP_ROWS]
        runs.update(session.scalars(select(Rank.run_id).where(Rank.epoch.in_(some)).distinct()))
    return runs


def _greater(column: Any, value: int) -> Any:
    # the greater of two values is max() in SQLite and greatest() in PostgreSQL; CASE is the same in both
    return case((column > value, column), else_=value)


def _table(mapped: type[Any]) -> Table:
    table: Table = mapped.__table__
    return table


def _fingerprint(start: wire.RankStart) -> bytes:
    fingerprint: bytes = start.SerializeToString(deterministic=True)
    return fingerprint


def _at(unix_ns: int) -> datetime:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC)


def _run_row(start: wire.RankStart, now: datetime) -> dict[str, Any]:
    return {
        "id": start.run,
        "name": (start.run_name or start.run)[:MAX_RUN_NAME],
        "state": RUNNING,
        "world_size": start.world_size,
        "started_at": _at(start.start_unix_ns),
        "last_seen_at": now,
        "last_step": -1,
        "revision": 0,
    }


def _node_row(name: str, now: datetime) -> dict[str, Any]:
    return {"name": name, "first_seen_at": now, "last_seen_at": now}


def _rank_row(start: wire.RankStart) -> dict[str, Any]:
    return {
        "epoch": f"{start.epoch:016x}",
        "run_id": start.run,
        "attempt": start.attempt,
        "rank": start.rank,
        "world_size": start.world_size,
        "local_rank": start.local_rank,
        "node": start.node,
        "pid": start.pid,
        "coordinates": dict(start.coordinates),
        "sources": dict(start.sources),
        "framework": start.framework[:MAX_FRAMEWORK],
        "clock_offset_ns": start.start_unix_ns - start.start_monotonic_ns,
        "started_at": _at(start.start_unix_ns),
        "end": "",
    }
