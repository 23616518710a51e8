"""Fails when code changed without a fragment in changes/ that tells users so.

The work under test is what lies between a base and HEAD. The base is CI_BASE where it is set; else origin/main where
HEAD has left it; else the newest release's tag; else, as in a bare clone before the first release, the first commit.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

CODE = ("agent/", "collector/", "analytics/", "dashboard/", "fleet/", "migrations/")
FRAGMENT = re.compile(r"^changes/\d+\.(added|changed|fixed|removed)\.md$")


def main() -> int:
    """Print the verdict, and return 1 when a fragment is missing."""
    base = find_base()
    if base is None:
        print("no commit to compare with: nothing to check")
        return 0
    files = _git("diff", "--name-only", f"{base}..HEAD").splitlines()
    code = [name for name in files if name.startswith(CODE)]
    fragments = [name for name in files if FRAGMENT.match(name)]
    if code and not fragments:
        print(
            f"{len(code)} files of code changed since {base[:12]} (first: {code[0]}), "
            "but no changes/<issue>.<added|changed|fixed|removed>.md says so",
            file=sys.stderr,
        )
        return 1
    print(f"since {base[:12]}: {len(code)} files of code, {len(fragments)} fragments")
    return 0


def find_base() -> str | None:
    """Return the commit before the work under test, or None when history does not reach back to one."""
    if os.environ.get("CI_BASE"):
        return _git("rev-parse", os.environ["CI_BASE"])
    head = _git("rev-parse", "HEAD")
    fork = _git("merge-base", "HEAD", "origin/main")
    if fork and fork != head:
        return fork
    tag = _git("describe", "--tags", "--abbrev=0", "HEAD^")
    if tag:
        return _git("rev-parse", f"{tag}^{{commit}}")
    first = _git("rev-list", "--max-parents=0", "HEAD").splitlines()
    return first[-1] if first and first[-1] != head else None


def _git(*arguments: str) -> str:
    """Return git's answer, or nothing when it has none (no such ref, a shallow clone)."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
