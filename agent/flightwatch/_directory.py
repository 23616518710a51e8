"""Where a node keeps its rings, spool and logs, and how the directory is made."""

from __future__ import annotations

import os
from collections.abc import Mapping

MODE = 0o700  # stacks and names of a job are its owner's


def node_directory(environ: Mapping[str, str]) -> str:
    """Return FLIGHTWATCH_DIR, or `flightwatch-<uid>` in the temporary directory; absolute."""
    told = environ.get("FLIGHTWATCH_DIR")
    if told:
        return os.path.abspath(told)
    import tempfile  # 20 ms that most jobs never need

    return os.path.join(tempfile.gettempdir(), f"flightwatch-{os.getuid()}")


def make_rings_directory(directory: str) -> str:
    """Create `directory` and its `rings`, and return the path of the latter.

    Raises: OSError when they cannot be made, PermissionError when someone else owns them: /tmp is everybody's, and
    whoever made the directory first could read or cut our rings.
    """
    rings = os.path.join(directory, "rings")
    for path in (directory, rings):
        os.makedirs(path, mode=MODE, exist_ok=True)
        if os.stat(path).st_uid not in (os.getuid(), 0):
            raise PermissionError(f"{path} belongs to another user")
    return rings
