from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analytics.own_work import compute_cube, own_work_of, shared_work_of
from analytics.roles import roles_of
from analytics.window import Topology, Window
from tests.analytics.detectors.grid import job


def own_work(window: Window, excluded: np.ndarray | None = None) -> np.ndarray:
    return own_work_of(window, roles_of(window.topology), excluded).ratios["compute"]


def test_compute_is_forward_and_backward_of_one_micro_batch() -> None:
    window = job(dp=2, pp=1)

    np.testing.assert_array_equal(compute_cube(window), window.seconds["forward"] + window.seconds["backward"])


def test_compute_is_summed_by_step_where_one_of_both_does_not_tell_micro_batches() -> None:
    window = job(dp=2, pp=1)
    window = replace(
        window, seconds={**window.seconds, "backward": window.seconds["backward"].sum(axis=2, keepdims=True)}
    )

    cube = compute_cube(window)

    assert cube.shape == (2, 30, 1)
    np.testing.assert_allclose(cube[:, :, 0], window.per_step("forward", "backward"))


def test_compute_is_summed_by_step_where_pairs_are_mostly_missing() -> None:
    window = job(dp=2, pp=1)
    window.seconds["forward"][:, :20, 1:] = np.nan
    window.seconds["backward"][:, :20, 0] = np.nan

    assert compute_cube(window).shape == (2, 30, 1)


def test_a_slow_rank_shows_its_factor_and_its_peers_show_none() -> None:
    ratios = own_work(job(dp=9, pp=1, noise=0.005, slow={4: 1.2}))

    assert float(np.median(ratios[4])) == pytest.approx(np.log(1.2), abs=0.01)
    assert np.abs(np.median(np.delete(ratios, 4, axis=0), axis=1)).max() < 0.01


def test_work_that_a_replica_shares_is_taken_out_and_slowness_is_not() -> None:
    window = job(dp=16, pp=2, work=0.3, noise=0.01, slow={5: 1.2})

    work = own_work_of(window, roles_of(window.topology))

    assert work.shared_work > 0.9
    assert float(np.median(work.ratios["compute"][5])) == pytest.approx(np.log(1.2), abs=0.04)
    spread = np.std(work.ratios["compute"][0]) / np.std(work.raw[0])
    assert spread < 0.3


def test_nothing_is_taken_out_where_stages_do_not_vary_together() -> None:
    window = job(dp=8, pp=2, noise=0.05)

    work = own_work_of(window, roles_of(window.topology))

    assert abs(work.shared_work) < 0.2
    np.testing.assert_array_equal(work.ratios["compute"], work.raw)


def test_stages_on_one_node_bear_no_witness_for_each_other() -> None:
    window = job(dp=8, pp=2, work=0.3, ranks_per_node=2)  # a node holds both stages of a replica

    assert own_work_of(window, roles_of(window.topology)).shared_work == 0.0


def test_who_is_excluded_is_nobodys_peer_and_is_compared_all_the_same() -> None:
    window = job(dp=3, pp=1, noise=0.0, slow={0: 2.0})

    ratios = own_work(window, np.array([True, False, False]))

    np.testing.assert_allclose(ratios[0], np.log(2.0))
    np.testing.assert_allclose(ratios[1:], 0.0, atol=1e-12)


@pytest.mark.parametrize("phase", ["collective", "step"])
def test_waits_are_nobodys_work(phase: str) -> None:
    window = job(dp=4, pp=1)

    work = own_work_of(replace(window, seconds={phase: np.ones((4, 30, 1))}), roles_of(window.topology))

    assert set(work.ratios) == {"compute"}
    assert np.isnan(work.ratios["compute"]).all()


def test_variation_is_that_of_one_micro_batch() -> None:
    window = job(dp=200, pp=1, n_steps=20, noise=0.0)
    scatter = np.random.default_rng(0).normal(0.0, 0.1, window.seconds["forward"].shape)
    for cube in (window.seconds["forward"], window.seconds["backward"]):
        cube *= np.exp(scatter)

    assert own_work_of(window, roles_of(window.topology)).variation == pytest.approx(0.1, rel=0.1)


def test_without_other_stages_nothing_is_shared() -> None:
    flat = np.random.default_rng(0).standard_normal((4, 50))

    told = shared_work_of(flat, Topology(np.arange(4), ("",) * 4, {"dp": np.arange(4), "pp": np.zeros(4, int)}))
    untold = shared_work_of(flat, Topology(np.arange(4), ("",) * 4))

    assert told == untold == (0.0, None)
