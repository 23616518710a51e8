"""The figure that says why there is no figure."""

from __future__ import annotations

import plotly.graph_objects as go

from dashboard.figures.palette import Palette, base_layout
from dashboard.figures.safe_text import safe_text


def notice(text: str, colours: Palette, *, height: int) -> go.Figure:
    """Return an empty figure with `text` in its middle."""
    layout = base_layout(colours, height=height, key="notice")
    hidden = {"visible": False}
    layout |= {
        "xaxis": hidden,
        "yaxis": hidden,
        "annotations": [
            {
                "text": safe_text(text).replace("\n", "<br>"),
                "showarrow": False,
                "xref": "paper",
                "yref": "paper",
                "x": 0.5,
                "y": 0.5,
                "font": {"color": colours.muted, "size": 13},
            }
        ],
    }
    return go.Figure(layout=layout)
