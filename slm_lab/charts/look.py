"""The look that pictures and pages share: colours, and the texts of ticks."""

import math
from typing import NamedTuple

# The colours of Okabe and Ito, which people with any colour vision tell apart. Yellow
# is left out, and dark grey stands for black.
OKABE_ITO = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#333333",
)
TEXT = "#222222"
MUTED = "#666666"
GRID = "#E4E4E4"
BAND_OPACITY = 0.18
MARGIN_BELOW = 0.15
"""The share of the scale of viridis that is left out: its yellow is lost on white."""
BIG = 1e4  # axes beyond are labelled in thousands
SMALL = 1e-3  # axes below are labelled with an exponent
HUGE = 1e12  # and axes beyond this, too


class Stroke(NamedTuple):
    """How a line is drawn: its width in points, its opacity, and its place in a legend.
    Its dashes have a word for matplotlib and one for plotly."""

    width: float
    linestyle: str
    dash: str
    opacity: float
    rank: int


STROKES = {
    "solid": Stroke(2.4, linestyle="solid", dash="solid", opacity=1.0, rank=1),
    "dashed": Stroke(1.8, linestyle="dashed", dash="dash", opacity=1.0, rank=2),
    "faint": Stroke(0.9, linestyle="solid", dash="solid", opacity=0.3, rank=3),
}
"""The stroke of each style of a curve."""


def colour(index: int, strength: float = 1.0) -> str:
    """A colour of the palette as #RRGGBB; less `strength` is more white."""
    name = OKABE_ITO[index % len(OKABE_ITO)]
    parts = [int(name[start : start + 2], 16) for start in (1, 3, 5)]
    paler = [round(255 + strength * (part - 255)) for part in parts]
    return "#" + "".join(f"{part:02X}" for part in paler)


def tick_text(value: float, largest: float) -> str:
    """A tick's text on an axis that reaches to `largest`: 50k, 1.5M, 1250, 0.02,
    2.5e−4, 3e15."""
    if BIG <= largest < HUGE:
        for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= size * (1 - 1e-9):
                return _with_minus(f"{value / size:.6g}{suffix}")
    if value and (0 < largest < SMALL or largest >= HUGE):
        exponent = math.floor(math.log10(largest) + 1e-9)
        return _with_minus(f"{value / 10.0**exponent:.6g}e{exponent}")
    return _with_minus(f"{value + 0.0:.6g}")  # + 0.0 turns −0 into 0


def _with_minus(number: str) -> str:
    return number.replace("-", "−")
