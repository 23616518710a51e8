"""Attributes with a hyphen, which Python's keywords cannot spell."""

from __future__ import annotations

from typing import Any


def attributes(**named: str) -> dict[str, Any]:
    """Return `aria_label="x"` as {"aria-label": "x"}; to be passed with ** to Dash's html components."""
    return {name.replace("_", "-"): text for name, text in named.items()}
