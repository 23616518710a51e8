"""The numbered SQL scripts of the telemetry store, and their statements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from collector.store.scripts import migration_scripts

_NAME = re.compile(r"^(\d{4})_\w+\.sql$")
_COMMENT = re.compile(r"--[^\n]*")


@dataclass(frozen=True, slots=True)
class Script:
    """One migration: its number, its file's name and its statements in order."""

    version: int
    name: str
    statements: tuple[str, ...]


@cache
def scripts() -> tuple[Script, ...]:
    """Return all scripts by rising version; they have no holes (a test holds it)."""
    found = []
    for path in sorted(migration_scripts("telemetry").iterdir()):
        match = _NAME.match(path.name)
        if match:
            found.append(Script(int(match[1]), path.name, split_statements(path.read_text())))
    return tuple(found)


def newest_version() -> int:
    """Return the version of the schema that this program wants."""
    return scripts()[-1].version


def split_statements(sql: str) -> tuple[str, ...]:
    """Return the statements between semicolons, without comments.

    Our scripts hold neither semicolons nor `--` inside string literals; a real lexer would buy nothing.
    """
    parts = (part.strip() for part in _COMMENT.sub("", sql).split(";"))
    return tuple(part for part in parts if part)
