from __future__ import annotations

import numpy as np
from sqlalchemy import Engine

from analytics.ratios import peer_log_ratios
from collector.store.records.session import UnitOfWork
from dashboard.compute_window import REFRESH_SECONDS, ComputeWindow
from dashboard_scene import START, SimulatedTelemetry, advance, rank_record, seed_run


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def small_run(engine: Engine, **changes: object) -> SimulatedTelemetry:
    seed_run(engine, n_ranks=64, last_step=99)
    return SimulatedTelemetry(n_ranks=64, slow_from=50, **changes)  # type: ignore[arg-type]


def test_view_equals_what_the_store_holds(empty_engine: Engine) -> None:
    telemetry = small_run(empty_engine)
    window = ComputeWindow("demo", empty_engine, telemetry)

    view = window.view(last_step=99, n_steps=100)

    expected = np.stack([telemetry.seconds(step) for step in range(100)], axis=1)
    stage = (np.arange(64) // 8) % 4
    assert view.steps.tolist() == list(range(100))
    np.testing.assert_allclose(view.seconds, expected, rtol=1e-6)
    np.testing.assert_allclose(view.log_ratios, peer_log_ratios(expected, stage), atol=1e-5)


def test_an_update_fetches_only_the_new_steps(empty_engine: Engine) -> None:
    telemetry, clock = small_run(empty_engine), FakeClock()
    window = ComputeWindow("demo", empty_engine, telemetry, now=clock)
    window.view(last_step=99, n_steps=100)
    telemetry.asked.clear()

    clock.seconds += 2 * REFRESH_SECONDS
    view = window.view(last_step=101, n_steps=100)

    assert telemetry.asked == [(100, 101)]
    assert view.steps.tolist() == list(range(2, 102))


def test_updates_end_with_the_same_view_as_one_look(empty_engine: Engine) -> None:
    telemetry, clock = small_run(empty_engine), FakeClock()
    window = ComputeWindow("demo", empty_engine, telemetry, now=clock, capacity=80)
    for last_step in (30, 31, 60, 99):
        clock.seconds += 2 * REFRESH_SECONDS
        grown = window.view(last_step=last_step, n_steps=80)

    whole = ComputeWindow("demo", empty_engine, telemetry, capacity=80).view(last_step=99, n_steps=80)

    assert grown.steps.tolist() == whole.steps.tolist()
    np.testing.assert_array_equal(grown.log_ratios, whole.log_ratios)


def test_many_viewers_share_one_look(empty_engine: Engine) -> None:
    telemetry = small_run(empty_engine)
    window = ComputeWindow("demo", empty_engine, telemetry, now=FakeClock())

    for _ in range(5):
        window.view(last_step=99, n_steps=100)

    assert len(telemetry.asked) == 1


def test_a_longer_window_fetches_only_what_is_older(empty_engine: Engine) -> None:
    telemetry = small_run(empty_engine)
    window = ComputeWindow("demo", empty_engine, telemetry, now=FakeClock())
    window.view(last_step=99, n_steps=20)
    telemetry.asked.clear()

    view = window.view(last_step=99, n_steps=50)

    assert (50, 79) in telemetry.asked
    assert len(view.steps) == 50


def test_a_late_rank_fills_its_hole(empty_engine: Engine) -> None:
    telemetry, clock = small_run(empty_engine, absent=frozenset({(5, 97)})), FakeClock()
    window = ComputeWindow("demo", empty_engine, telemetry, now=clock)
    before = window.view(last_step=99, n_steps=100)
    assert np.isnan(before.seconds[5, 97])

    telemetry.absent = frozenset()
    clock.seconds += 2 * REFRESH_SECONDS
    after = window.view(last_step=100, n_steps=100)

    assert np.isfinite(after.seconds[5]).all()


def test_a_rank_that_starts_later_joins_the_window(empty_engine: Engine) -> None:
    telemetry, clock = small_run(empty_engine), FakeClock()
    window = ComputeWindow("demo", empty_engine, telemetry, now=clock)
    window.view(last_step=99, n_steps=10)
    with UnitOfWork(empty_engine, writing=True) as work:
        work.session.add(rank_record("demo", 64, world_size=65, begun=START))

    clock.seconds += 2 * REFRESH_SECONDS
    view = window.view(last_step=advance(empty_engine), n_steps=10)

    assert view.topology.ranks[-1] == 64
    assert view.seconds.shape == (65, 10)


def test_a_run_without_steps_gives_an_empty_view(empty_engine: Engine) -> None:
    telemetry = small_run(empty_engine)

    view = ComputeWindow("demo", empty_engine, telemetry).view(last_step=-1)

    assert view.seconds.shape == (64, 0)
    assert view.reporting == 0
