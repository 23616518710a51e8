"""Errors named after the user's mistake. All derive from FlightwatchError: one line, and exit code 2.

FlightwatchError
├── PortInUseError
├── UnknownFileKindError
├── DamagedFileError
├── SchemaMismatchError
├── MalformedBatchError
├── RefusedRowsError
└── StoreUnreachableError
"""

from __future__ import annotations

from flightwatch.errors import FlightwatchError


class PortInUseError(FlightwatchError):
    """A port that a server process needs is taken."""


class UnknownFileKindError(FlightwatchError):
    """No reader recognises the file."""


class DamagedFileError(FlightwatchError):
    """A file of a known kind is truncated, lacks columns or holds values that cannot be."""


class SchemaMismatchError(FlightwatchError):
    """A store's schema is older or newer than this program's."""


class MalformedBatchError(FlightwatchError):
    """A message on the wire breaks its contract; `field` is the path of the offending field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class RefusedRowsError(FlightwatchError):
    """A store answers, and refuses rows for what they hold: trying again cannot help."""


class StoreUnreachableError(FlightwatchError):
    """A store does not answer at its URL."""
