"""`python -m dashboard.supervision.leash PROGRAM ...`: become PROGRAM, and die with the process that started us.

A supervisor that is killed outright cannot stop its parts; the kernel does it then (PR_SET_PDEATHSIG outlives exec).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Ask the kernel for SIGTERM at the parent's death, and exec the arguments."""
    supervisor, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != supervisor:  # it died before we asked
        return
    os.execv(program[0], program)  # noqa: S606  # no shell is wanted


if __name__ == "__main__":
    main()
