"""Runs pip with what is asked for, and shows one moving line instead of a wall; all of pip's words when it fails.

    python requirements/install.py LABEL PIP-ARGUMENTS...

Standard library only: it is what installs everything else.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

# pip writes one of these per package; which of them depends on whether it is there already.
_ANNOUNCED = re.compile(r"^(?:Collecting|Obtaining|Requirement already satisfied:|Processing)\s+(\S+)")
_PINNED = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.\-]*(?:\[[^\]]*\])?==", re.MULTILINE)
KEPT_LINES = 200  # of pip's output, for the case that it fails
PLAIN_INTERVAL_SECONDS = 5.0  # between two lines where the line cannot move


def main(arguments: list[str]) -> int:
    """Install, and return pip's exit code."""
    label, pip_arguments = arguments[0], arguments[1:]
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    started = time.monotonic()
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    process = subprocess.Popen(
        [*command, *pip_arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if process.stdout is None:
        raise AssertionError("the pipe was asked for")
    _follow(process.stdout, label, count_packages(pip_arguments), kept)
    code = process.wait()
    if code:
        print("".join(kept), file=sys.stderr)
        print(f"{label}: pip failed with exit code {code}; its last lines are above", file=sys.stderr)
    else:
        _say(f"{label}: done in {time.monotonic() - started:.0f} s", last=True)
    return code


def count_packages(pip_arguments: list[str]) -> int:
    """Return how many pinned packages the files behind `-r` name; an upper bound, since markers leave some out."""
    files = [Path(value) for flag, value in pairwise(pip_arguments) if flag == "-r"]
    return sum(len(_PINNED.findall(path.read_text())) for path in files if path.exists())


def _follow(lines: Iterable[str], label: str, total: int, kept: deque[str]) -> None:
    seen = 0
    said_at = 0.0
    for line in lines:
        kept.append(line)
        name = _ANNOUNCED.match(line)
        if name:
            seen += 1
            text = f"{label}: {seen}{f' of {total}' if total else ''}  {_package(name[1])}"
        elif line.startswith("Installing collected packages"):
            text = f"{label}: unpacking {line.count(',') + 1} packages"
        else:
            continue
        now = time.monotonic()
        if sys.stdout.isatty() or now - said_at > PLAIN_INTERVAL_SECONDS or not name:
            said_at = now
            _say(text)


def _package(announced: str) -> str:
    """Return "numpy" for "numpy==2.4.6", and for a file that lies at hand, "/.../numpy-2.4.6-cp311-...whl"."""
    name = re.match(r"[A-Za-z0-9_.]+(?:-[A-Za-z_.]+)*", announced.rstrip("/").rsplit("/", 1)[-1])
    return name[0] if name else announced


def _say(text: str, last: bool = False) -> None:
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end="\n" if last else "", flush=True)
    else:
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
