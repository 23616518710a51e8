"""Attributes of other people's classes and modules, replaced and put back."""

from __future__ import annotations

from typing import Any


class Patches:
    """Remembers what stood where, so that unloading leaves no trace of ours."""

    def __init__(self) -> None:
        self._old: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Set `owner.name` to `new`."""
        self._old.append((owner, name, getattr(owner, name), new))
        setattr(owner, name, new)

    def undo(self) -> None:
        """Put everything back that is still ours; whoever patched over us keeps theirs."""
        while self._old:
            owner, name, old, new = self._old.pop()
            if getattr(owner, name, None) is new:
                setattr(owner, name, old)
