"""Makes sure that a node has one forwarder."""

from __future__ import annotations

import fcntl
import os


class NodeLock:
    """An exclusive lock on `<directory>/forwarder.lock`, which holds its owner's pid. It lapses with the process."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "forwarder.lock")
        self._fd = -1

    def acquire(self) -> bool:
        """Take the lock, or return False because another forwarder has it."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return True

    def release(self) -> None:
        """Let the lock go. The file stays: removing it would let two forwarders lock two files of one name."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
