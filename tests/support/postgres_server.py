"""A real PostgreSQL server of a test's own, from Debian's binaries."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def missing() -> str:
    """Return why no server can be started here, or an empty string."""
    if not BINARIES:
        return "PostgreSQL's binaries are not installed"
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        return "PostgreSQL refuses root, and runuser is missing"
    return ""


@contextmanager
def postgres_url() -> Iterator[str]:
    """Start a server that listens on a Unix socket only, and yield the URL of its database."""
    folder = Path(tempfile.mkdtemp(prefix="fw-pg-"))  # short: the path of a Unix socket may have 107 bytes
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        programs = BINARIES[-1].parent
        data = folder / "data"
        _run(str(programs / "initdb"), "--pgdata", str(data), "--username", "test", "--auth", "trust", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        control = (str(programs / "pg_ctl"), "--pgdata", str(data), "--wait")
        _run(*control, "--log", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://test@/postgres?host={folder}"
        finally:
            _run(*control, "--mode", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(*command: str) -> None:
    as_other = ("runuser", "-u", "postgres", "--") if os.geteuid() == 0 else ()
    subprocess.run((*as_other, *command), check=True, stdout=subprocess.DEVNULL, timeout=120, cwd="/")
