"""What the parts of a long page share: where they are, their headings and words, names of axes."""

import html
from dataclasses import dataclass
from typing import Any, final

from slm_lab.analysis.figure import figure as look

MARGIN = {"l": 100, "r": 40, "t": 130, "b": 60}
"""Pixels around the page's plot."""
HEADING = 36
"""Pixels above a part."""
PAGE_WIDTH, LETTER = 1300, 8.5
"""Pixels of the page's plot in a usual window, and of a letter."""

_LONGEST = 24  # letters of a name


@final
@dataclass(frozen=True)
class Band:
    """A part of a page from side to side, between `foot` and `top`.

    These are shares of the page's plot, which is `whole` pixels high.
    """

    foot: float
    top: float
    whole: int

    @property
    def middle(self) -> float:
        """Of its height."""
        return (self.foot + self.top) / 2

    def below_top(self, pixels: float) -> float:
        """The share of the plot that is so far down."""
        return self.top - pixels / self.whole

    def above_foot(self, pixels: float) -> float:
        """The share of the plot that is so far up."""
        return self.foot + pixels / self.whole


def heading(text: str, band: Band, hint: str = "") -> dict[str, Any]:
    """The title of a part, above it, and a hint beside it."""
    title = f"<b>{html.escape(text)}</b>"
    if hint:
        title += f'   <span style="font-size:14px;color:{look.MUTED}">{html.escape(hint)}</span>'
    words = words_at("", 0.0, band.below_top(-HEADING), size=18)
    return {**words, "text": title, "xshift": -MARGIN["l"] + 28}


def words_at(
    text: str, x: float, y: float, colour: str = look.INK, size: int = 16
) -> dict[str, Any]:
    """Text whose upper left corner is at (x, y), as shares of the page's plot."""
    return {
        "text": html.escape(text),
        "xref": "paper",
        "yref": "paper",
        "x": x,
        "y": y,
        "xanchor": "left",
        "yanchor": "top",
        "showarrow": False,
        "align": "left",
        "font": {"size": size, "color": colour},
    }


def nth(letter: str, index: int) -> str:
    """How traces call an axis: x, x2, x3."""
    return f"{letter}{index + 1}" if index else letter


def axis_key(name: str) -> str:
    """How the layout calls the axis that traces call x2: xaxis2; x1 is x."""
    return f"{name[0]}axis{name[1:]}"


def short(name: str, letters: int = _LONGEST) -> str:
    """Its beginning and its end, where it has more `letters`."""
    before = 3 * letters // 5
    return name if len(name) <= letters else f"{name[:before]}…{name[before + 1 - letters :]}"
