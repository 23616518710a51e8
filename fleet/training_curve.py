"""Loss and gradient norm of a model that learns."""

from __future__ import annotations

import numpy as np

from fleet.record_packer import Samples

# Own choice: from the entropy of a 50,000-word vocabulary, log(50,000) = 10.8, to a good model's 2.1, as a power law.
FIRST_LOSS = 10.8
FLOOR_LOSS = 2.1
HALF_LIFE_STEPS = 40.0
EXPONENT = 0.45


class TrainingCurve:
    """Yields the samples of step after step from one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 2])

    def samples(self, step: int) -> Samples:
        """Return the loss and the gradient norm of a step. Steps are asked for in ascending order."""
        shrunk = (1.0 + step / HALF_LIFE_STEPS) ** -EXPONENT
        loss_noise, norm_noise = self._rng.standard_normal(2)
        loss = FLOOR_LOSS + (FIRST_LOSS - FLOOR_LOSS) * shrunk * float(np.exp(0.012 * loss_noise))
        grad_norm = (0.3 + 4.0 * shrunk**2) * float(np.exp(0.08 * norm_noise))
        return Samples(loss=loss, grad_norm=grad_norm)
