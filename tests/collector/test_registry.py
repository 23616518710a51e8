from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from collector.registry import Registry
from collector.store.records import Base, Node, Rank, Run
from collector.store.records.session import UnitOfWork, open_engine
from flightwatch.wire import flightwatch_pb2 as wire
from wire_examples import START_UNIX_NS, a_start

START = datetime.fromtimestamp(START_UNIX_NS / 1e9, UTC)


class FakeClock:
    def __init__(self) -> None:
        self.now = START + timedelta(seconds=100)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path / 'records.sqlite'}")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def registry(engine: Engine, clock: FakeClock) -> Registry:
    return Registry(engine, now=clock)


def the_run(engine: Engine, run: str = "run-1") -> Run:
    with UnitOfWork(engine) as work:
        return work.session.scalars(select(Run).where(Run.id == run)).one()


def all_ranks(engine: Engine) -> list[Rank]:
    with UnitOfWork(engine) as work:
        return list(work.session.scalars(select(Rank).order_by(Rank.rank, Rank.attempt)))


def an_end(epoch: int, how: str = "clean") -> wire.RankEnd:
    return wire.RankEnd(epoch=epoch, how=how, records_written=77, unix_ns=START_UNIX_NS + 60 * 10**9)


def test_start_makes_run_node_and_rank(engine: Engine, registry: Registry) -> None:
    registry.enter_starts([a_start(0xAB, rank=2, run_name="mine", coordinates={"dp": 1}, sources={"rank": "RANK"})])

    run, (rank,) = the_run(engine), all_ranks(engine)
    assert (run.name, run.state, run.world_size, run.last_step, run.revision) == ("mine", "running", 4, -1, 0)
    assert run.started_at == START
    assert (rank.epoch, rank.rank, rank.node) == ("00000000000000ab", 2, "node-0")
    assert (rank.coordinates, rank.sources) == ({"dp": 1}, {"rank": "RANK"})
    assert rank.clock_offset_ns == 1_790_000_000 * 10**9 - 5_000 * 10**9


def test_repeated_start_changes_nothing_but_what_it_says_anew(engine: Engine, registry: Registry) -> None:
    registry.enter_starts([a_start(1)])
    registry.touch({"run-1": 50}, ["node-0"])
    with UnitOfWork(engine, writing=True) as work:
        work.session.scalars(select(Run)).one().revision = 9

    Registry(engine).enter_starts([a_start(1, coordinates={"tp": 3})])

    run, (rank,) = the_run(engine), all_ranks(engine)
    assert (run.last_step, run.revision) == (50, 9)
    assert rank.coordinates == {"tp": 3}


def test_world_size_is_that_of_the_newest_attempt_in_whatever_order_starts_come(
    engine: Engine, registry: Registry
) -> None:
    registry.enter_starts([a_start(2, attempt=1, world_size=2)])

    registry.enter_starts([a_start(1, attempt=0, world_size=4)])  # from a spool

    assert the_run(engine).world_size == 2


def test_run_ends_with_its_last_rank(engine: Engine, registry: Registry) -> None:
    registry.enter_starts([a_start(1, rank=0), a_start(2, rank=1)])

    registry.enter_ends([an_end(1)])
    assert the_run(engine).state == "running"
    registry.enter_ends([an_end(2, "lost")])

    run = the_run(engine)
    assert (run.state, run.ended_at) == ("ended", START + timedelta(seconds=60))
    assert [(rank.end, rank.records_written) for rank in all_ranks(engine)] == [("clean", 77), ("lost", 77)]


def test_new_attempt_makes_an_ended_run_run_again(engine: Engine, registry: Registry) -> None:
    registry.enter_starts([a_start(1)])
    registry.enter_ends([an_end(1)])

    registry.enter_starts([a_start(2, attempt=1)])

    run = the_run(engine)
    assert (run.state, run.ended_at) == ("running", None)


def test_rank_of_an_older_attempt_without_an_end_does_not_keep_a_run_open(engine: Engine, registry: Registry) -> None:
    registry.enter_starts([a_start(1), a_start(2, attempt=1)])

    registry.enter_ends([an_end(2)])

    assert the_run(engine).state == "ended"


def test_start_that_comes_again_after_its_end_does_not_revive_the_rank(engine: Engine, registry: Registry) -> None:
    registry.enter_starts([a_start(1)])
    registry.enter_ends([an_end(1)])

    Registry(engine).enter_starts([a_start(1)])

    (rank,) = all_ranks(engine)
    assert rank.end == "clean"
    assert rank.ended_at is not None
    assert the_run(engine).state == "ended"


def test_touch_moves_steps_forward_only(engine: Engine, registry: Registry, clock: FakeClock) -> None:
    registry.enter_starts([a_start(1)])
    registry.touch({"run-1": 50}, [])
    clock.now += timedelta(seconds=5)

    registry.touch({"run-1": 20}, ["node-0", "node-9"])

    run = the_run(engine)
    assert (run.last_step, run.last_seen_at) == (50, clock.now)
    with UnitOfWork(engine) as work:
        nodes = {node.name: node for node in work.session.scalars(select(Node))}
    assert set(nodes) == {"node-0", "node-9"}
    assert nodes["node-0"].first_seen_at < nodes["node-0"].last_seen_at == clock.now


def test_ten_thousand_starts_and_ends_are_entered_at_once(engine: Engine, registry: Registry) -> None:
    starts = [a_start(rank + 1, rank=rank, world_size=10_000, node=f"n{rank // 8}") for rank in range(10_000)]

    registry.enter_starts(starts)
    registry.enter_ends([an_end(start.epoch) for start in starts])

    assert len(all_ranks(engine)) == 10_000
    assert the_run(engine).state == "ended"


def test_end_of_an_unknown_rank_does_no_harm(engine: Engine, registry: Registry) -> None:
    registry.enter_ends([an_end(99)])

    assert all_ranks(engine) == []
