from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Engine

from collector.store.records import StoredFinding
from collector.store.records.session import UnitOfWork
from dashboard import queries
from dashboard_scene import START, advance, rank_record, seed_run


def test_a_rank_that_came_back_stands_where_it_stands_now(empty_engine: Engine) -> None:
    seed_run(empty_engine, n_ranks=16)
    again = rank_record("demo", 3, world_size=16, begun=START + timedelta(hours=1))
    again.epoch, again.node = "f" * 16, "spare-1"
    with UnitOfWork(empty_engine, writing=True) as work:
        work.session.add(again)

    topology = queries.topology(empty_engine, "demo")

    assert topology.ranks.tolist() == list(range(16))
    assert topology.nodes[3] == "spare-1"
    assert topology.coordinates["tp"].tolist() == [*range(8), *range(8)]


def test_only_the_newest_attempt_counts(empty_engine: Engine) -> None:
    seed_run(empty_engine, n_ranks=16)
    with UnitOfWork(empty_engine, writing=True) as work:
        for rank in range(8):
            record = rank_record("demo", rank, world_size=8, begun=START)
            record.epoch, record.attempt = f"a{rank:015x}", 1
            work.session.add(record)

    assert len(queries.topology(empty_engine, "demo").ranks) == 8


def test_an_unknown_coordinate_is_minus_one(empty_engine: Engine) -> None:
    seed_run(empty_engine, n_ranks=2)
    odd = rank_record("demo", 2, world_size=3, begun=START)
    odd.coordinates = {}
    with UnitOfWork(empty_engine, writing=True) as work:
        work.session.add(odd)

    assert queries.topology(empty_engine, "demo").coordinates["dp"].tolist() == [0, 0, -1]


def test_counters_stand_still_until_something_happens(engine: Engine) -> None:
    before = queries.counters(engine)
    same = queries.counters(engine)
    advance(engine)

    assert before == same != queries.counters(engine)


def test_innocent_findings_are_kept_apart_from_incidents(engine: Engine) -> None:
    body = {"summary": "Stage 3 holds more layers"}
    with UnitOfWork(engine, writing=True) as work:
        work.session.add(StoredFinding(id="1", run_id="demo", incident_id=None, created_at=START, body=body))

    assert [one.body for one in queries.list_explanations(engine, "demo")] == [body]
    assert len(queries.list_findings(engine, "01INCIDENT")) == 3


def test_unknown_things_are_none(engine: Engine) -> None:
    assert queries.find_run(engine, "x") is None
    assert queries.find_incident(engine, "x") is None
    assert queries.list_incidents(engine, "x") == []
