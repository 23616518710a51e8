"""Text from jobs (names of hosts, runs) as Plotly is to show it, which by itself reads pseudo-HTML and %{templates}."""

from __future__ import annotations

import html

MAX_LABEL_CHARACTERS = 28  # a tick label of 11 px then stays below 190 px


def safe_text(text: str) -> str:
    """Return `text` so that Plotly prints it as it is."""
    return html.escape(text, quote=False).replace("%{", "%\u200b{")


def short_label(text: str, limit: int = MAX_LABEL_CHARACTERS) -> str:
    """Return `text` escaped and cut in its middle, where host names differ least, to `limit` characters."""
    if len(text) > limit:
        head = (limit - 1) // 2
        text = text[:head] + "…" + text[-(limit - 1 - head) :]
    return safe_text(text)
