"""The root of every error that flightwatch raises on purpose."""

from __future__ import annotations


class FlightwatchError(Exception):
    """Something the user can mend. Its text is one line: what is wrong, where, and what to do."""
