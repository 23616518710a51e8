"""Nothing in the repository names the machine on which it was written."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
# Put together here, so that this file does not hold what it looks for.
MACHINE = re.compile(
    "|".join(["/" + "work" + "/", r"(?<!\w)\." + "library", "/opt/" + "(?:pypi|wheels)", "/" + "tmp/contracts"])
)


def _tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [REPOSITORY / name for name in done.stdout.split("\0") if name]


def test_no_file_names_this_machine() -> None:
    naming = []
    for path in _tracked():
        if not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # a picture or a trace
        naming += [f"{path.relative_to(REPOSITORY)}: {match[0]}" for match in MACHINE.finditer(text)]

    assert naming == []


def test_no_build_output_is_tracked() -> None:
    built = re.compile(r"(^|/)(__pycache__|dist|build|\.venv[^/]*)/|\.pyc$|\.egg-info")

    assert [str(path) for path in _tracked() if built.search(str(path.relative_to(REPOSITORY)))] == []
