from __future__ import annotations

from fleet.training_curve import TrainingCurve


def test_loss_falls_from_that_of_a_blank_model_and_keeps_above_its_floor() -> None:
    curve = TrainingCurve(seed=1)
    losses = [curve.samples(step).loss for step in range(2000)]

    assert 10.3 < losses[0] < 11.3
    assert sum(losses[:50]) > 1.2 * sum(losses[50:100]) > sum(losses[-50:])
    assert min(losses) > 2.1


def test_same_seed_gives_the_same_curve() -> None:
    first, again = TrainingCurve(seed=3), TrainingCurve(seed=3)

    assert [first.samples(step) for step in range(5)] == [again.samples(step) for step in range(5)]
