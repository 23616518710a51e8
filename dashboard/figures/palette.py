"""Colours of the figures, for light and dark pages. Blue and orange differ under every colour blindness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Palette:
    """One page's colours; the same names are CSS variables in assets/flightwatch.css."""

    text: str
    muted: str
    grid: str
    surface: str
    no_record: str
    accent: str
    bad: str
    good_band: str
    lines: tuple[str, ...]
    ratio_scale: tuple[str, ...]


# Line colours: after Okabe and Ito, "Color Universal Design" (2008), darkened on light pages to 3:1 or more.
# Ratio scale: blue (faster than peers) through the page's own ground to orange-red (slower), equally long arms.
LIGHT = Palette(
    text="#1b2330",
    muted="#566173",
    grid="#e4e8ee",
    surface="#ffffff",
    no_record="#d3d8e0",
    accent="#1f5fbf",
    bad="#b93a0a",
    good_band="rgba(31,95,191,0.16)",
    lines=("#b93a0a", "#1f5fbf", "#00795a", "#8a5fa8", "#946c00", "#2b8cb0"),
    ratio_scale=("#08306b", "#2f6fb3", "#84b3da", "#d5e4f2", "#f7f8fa", "#fde2c4", "#f5a35c", "#d9570f", "#7a2100"),
)
DARK = Palette(
    text="#e6eaf1",
    muted="#9aa6b8",
    grid="#2a3342",
    surface="#151b25",
    no_record="#3a4353",
    accent="#6ea8fe",
    bad="#ff9257",
    good_band="rgba(110,168,254,0.20)",
    lines=("#ff9257", "#6ea8fe", "#3ec9a0", "#c79be6", "#e6bd4f", "#7fd3f0"),
    ratio_scale=("#a8d4ff", "#5c9fe0", "#33669f", "#24405f", "#1c2431", "#53361f", "#a4561b", "#f0822f", "#ffd0a1"),
)


def palette(theme: str | None) -> Palette:
    """Return the palette of `theme` ("dark", else light)."""
    return DARK if theme == "dark" else LIGHT


def base_layout(colours: Palette, *, height: int, key: str) -> dict[str, Any]:
    """Return what every figure's layout shares; `key` keeps zoom and hidden lines across updates."""
    axis = {
        "gridcolor": colours.grid,
        "linecolor": colours.grid,
        "zerolinecolor": colours.grid,
        "tickfont": {"color": colours.muted, "size": 11},
        "title_font": {"color": colours.muted, "size": 11},
        "title_standoff": 6,
        "automargin": False,
    }
    return {
        "template": "none",  # the default one is 7 kB in each figure, and every colour of it would be overridden
        "height": height,
        "margin": {"l": 52, "r": 12, "t": 8, "b": 34},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "color": colours.text, "size": 12},
        "hoverlabel": {"bgcolor": colours.surface, "bordercolor": colours.muted, "font": {"color": colours.text}},
        "showlegend": False,
        "uirevision": key,
        "xaxis": axis,
        "yaxis": axis,
    }
