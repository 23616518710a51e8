"""Where the migration scripts lie: beside the packages in a checkout, inside `collector` in an installed wheel."""

from __future__ import annotations

from pathlib import Path

import collector
from flightwatch.errors import FlightwatchError


def migration_scripts(store: str) -> Path:
    """Return the folder of the scripts of `store` ("records" or "telemetry").

    Raises:
        FlightwatchError: the installation lacks them.
    """
    package = Path(collector.__file__).parent
    for root in (package / "migrations", package.parent / "migrations"):
        if (root / store).is_dir():
            return root / store
    raise FlightwatchError(f"no migrations for the {store} store under {package}: reinstall flightwatch-server")


def describe_mismatch(store: str, found: str, wanted: str, *, is_newer: bool) -> str:
    """Return the one line that a process prints when it refuses a store of another schema."""
    remedy = "upgrade flightwatch" if is_newer else "run `flightwatch migrate`"
    return f"{store} is at version {found}, this flightwatch wants {wanted}; {remedy}"
