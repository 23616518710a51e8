from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flightwatch import _guard, _session


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's directory of its own, an environment that tells no rank, and no forwarder."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "FLIGHTWATCH", "FLIGHTWATCH_RUN_ID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLIGHTWATCH_DIR", str(tmp_path))
    monkeypatch.setattr(_session, "ensure_forwarder", lambda directory, environ: None)
    return tmp_path


@pytest.fixture
def fresh_process(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As if nothing of the agent had run in this process yet; everything is unloaded afterwards."""
    training_module = pytest.importorskip("flightwatch.pytorch.training")
    monkeypatch.setattr(_session, "_process", _session._Process())
    training = training_module.Training()
    monkeypatch.setattr(training_module, "training", training)
    _guard.guard.failures.clear()
    _guard.guard.off.clear()
    _guard.guard._said.clear()
    yield directory
    _session.close()
    training.remove()  # this one, and again: a test may have undone its patches, or made an earlier try fail
    _guard.guard.off.clear()
    _guard.guard._log_path = None
