"""The node's one forwarder, seen from those who need it: is it alive, and if not, start it by exec."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Mapping

from flightwatch._directory import MODE

# struct flock of Linux on 64 bits: type, whence, start, length, pid
_FLOCK = struct.Struct("hhqqi")
_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def forwarder_is_alive(directory: str) -> bool:
    """Return whether some process holds `forwarder.lock`. Asks only: taking the lock could turn a starting one away."""
    try:
        fd = os.open(os.path.join(directory, "forwarder.lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)


def start_forwarder(directory: str, environ: Mapping[str, str]) -> None:
    """Start `flightwatch forward` for `directory`, as nobody's child.

    A shell in between makes init its parent: a training process's `os.wait()` must not meet a child that it never
    made, and a command that `flightwatch run` becomes must not own one either.

    Raises: OSError when the directory cannot be written or nothing can be started.
    """
    import subprocess  # one rank of a node needs it, if any

    os.makedirs(directory, mode=MODE, exist_ok=True)
    command = [sys.executable, "-m", "flightwatch", "forward"]
    log = os.open(
        os.path.join(directory, "forwarder.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        shell = subprocess.Popen(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,  # `-m` puts the working directory first on the path; the user's may hold anything
            env=_forwarder_environment(directory, environ),
            start_new_session=True,
            close_fds=True,
        )
        shell.wait(timeout=5)
    finally:
        os.close(log)


def ensure_forwarder(directory: str, environ: Mapping[str, str]) -> None:
    """Start a forwarder for `directory` unless one is alive; two that start at once settle it by the lock."""
    if not forwarder_is_alive(directory):
        start_forwarder(directory, environ)


def _forwarder_environment(directory: str, environ: Mapping[str, str]) -> dict[str, str]:
    environment = {**environ, "FLIGHTWATCH_DIR": directory}
    environment.pop("FLIGHTWATCH", None)  # the forwarder itself is not to be watched
    paths = [os.path.abspath(path) for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if os.path.basename(_PACKAGE_PARENT) not in ("site-packages", "dist-packages"):
        paths.insert(0, _PACKAGE_PARENT)
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment
