"""What every detector must hold: pure, blind to the order of ranks, honest about NaN, picklable, deterministic."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from analytics.detectors import DETECTORS, Detector
from analytics.window import Topology, Window
from tests.analytics.detectors.grid import job

# Each holds something that one of the detectors names, so that no check passes by silence.
SCENES = {
    "slow_rank": job(dp=8, pp=2, slow={5: 1.4}),
    "slow_node": job(dp=8, pp=4, n_steps=20, ranks_per_node=4, slow=dict.fromkeys(range(8, 12), 1.3)),
    "heavy_stage": job(dp=4, pp=4, stages=(1.0, 1.0, 1.0, 1.5)),
    "sequence_length": job(dp=8, pp=2, n_steps=20, work=0.3),
    "heavy_stage_and_slow_rank": job(dp=4, pp=4, stages=(1.0, 1.0, 1.0, 1.5), slow={2: 1.3}),
}
every_detector = pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.name)
every_scene = pytest.mark.parametrize("scene", SCENES)


@every_detector
def test_some_scene_is_named_by_each_detector(detector: Detector) -> None:
    assert any(detector.detect(window) for window in SCENES.values())


@every_scene
@every_detector
def test_works_on_what_it_may_not_write_and_leaves_it_as_it_was(detector: Detector, scene: str) -> None:
    window = copy.deepcopy(SCENES[scene])
    arrays = [window.steps, window.step_unix_ns, window.topology.ranks, *window.topology.coordinates.values()]
    for array in [*arrays, *window.seconds.values()]:
        array.flags.writeable = False
    keys = (list(window.seconds), list(window.topology.coordinates))

    detector.detect(window)

    assert (list(window.seconds), list(window.topology.coordinates)) == keys
    for phase, cube in SCENES[scene].seconds.items():
        np.testing.assert_array_equal(window.seconds[phase], cube)


@every_scene
@every_detector
def test_says_the_same_twice_and_after_a_pickle(detector: Detector, scene: str) -> None:
    window = SCENES[scene]

    first = detector.detect(window)

    assert detector.detect(window) == first
    assert pickle.loads(pickle.dumps(detector)).detect(pickle.loads(pickle.dumps(window))) == first


@every_scene
@every_detector
def test_the_order_of_ranks_is_irrelevant(detector: Detector, scene: str) -> None:
    window = SCENES[scene]
    order = np.random.default_rng(7).permutation(len(window.topology.ranks))

    findings = detector.detect(reordered(window, order))

    assert [(f.id, sorted(f.ranks), f.cause) for f in findings] == [
        (f.id, sorted(f.ranks), f.cause) for f in detector.detect(window)
    ]


@every_scene
@every_detector
def test_names_of_ranks_carry_no_weight(detector: Detector, scene: str) -> None:
    window = SCENES[scene]
    topology = replace(window.topology, ranks=window.topology.ranks * 8 + 3)

    findings = detector.detect(replace(window, topology=topology))

    expected = [tuple(rank * 8 + 3 for rank in finding.ranks) for finding in detector.detect(window)]
    assert [finding.ranks for finding in findings] == expected


@every_scene
@every_detector
def test_unseen_times_add_no_finding_and_a_tenth_of_them_hides_none(detector: Detector, scene: str) -> None:
    window = copy.deepcopy(SCENES[scene])
    for number, cube in enumerate(window.seconds.values()):
        lost = np.random.default_rng(number).random(cube.shape[:2]) < 0.1  # whole steps of a rank
        cube[lost] = np.nan

    ids = [finding.id for finding in detector.detect(window)]

    assert ids == [finding.id for finding in detector.detect(SCENES[scene])]


@every_detector
def test_a_rank_without_any_time_is_no_suspect_and_no_obstacle(detector: Detector) -> None:
    window = copy.deepcopy(SCENES["slow_rank"])
    for cube in window.seconds.values():
        cube[9] = np.nan

    ids = [finding.id for finding in detector.detect(window)]

    assert ids == [finding.id for finding in detector.detect(SCENES["slow_rank"])]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("phases", [(), ("step",), ("step", "collective"), ("forward",), ("loader",), ("optimizer",)])
@pytest.mark.parametrize("fill", [np.nan, 0.0, 1.0])
@every_detector
def test_phases_that_tell_nothing_yield_nothing(detector: Detector, phases: tuple[str, ...], fill: float) -> None:
    window = job(dp=4, pp=2)
    window = replace(window, seconds={phase: np.full((8, 30, 1), fill) for phase in phases})

    assert detector.detect(window) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("dp", "pp", "n_steps"), [(1, 1, 30), (1, 4, 30), (4, 2, 1), (2, 1, 8)])
@every_detector
def test_small_healthy_jobs_yield_nothing(detector: Detector, dp: int, pp: int, n_steps: int) -> None:
    assert detector.detect(job(dp=dp, pp=pp, n_steps=n_steps, noise=0.005)) == []


@pytest.mark.filterwarnings("error")
@every_detector
def test_a_window_without_ranks_or_steps_yields_nothing(detector: Detector) -> None:
    empty = np.zeros(0, dtype=np.int64)
    nobody = Window("run", Topology(empty, ()), np.arange(30), {}, np.zeros(30, dtype=np.int64))
    never = Window("run", Topology(np.arange(4), ("",) * 4), empty, {"forward": np.zeros((4, 0, 1))}, empty)

    assert (detector.detect(nobody), detector.detect(never)) == ([], [])


def reordered(window: Window, order: np.ndarray) -> Window:
    topology = window.topology
    return replace(
        window,
        topology=Topology(
            topology.ranks[order],
            tuple(topology.nodes[index] for index in order.tolist()),
            {name: values[order] for name, values in topology.coordinates.items()},
        ),
        seconds={phase: cube[order] for phase, cube in window.seconds.items()},
    )
