"""Where the public traces lie: they are not part of the project, so that tests skip without them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def straggler_trace(name: str) -> Path:
    root = Path(os.environ.get("FLIGHTWATCH_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")
    path = root / "stragglers" / f"trace-{name}.parquet"
    if not path.exists():
        pytest.skip(f"public trace {path} is not here; set FLIGHTWATCH_SHARED_DATA")
    return path
