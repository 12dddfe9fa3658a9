"""The look that both renderers share: colours, and the texts of ticks."""

import math
from typing import NamedTuple

from slm_lab.core.types import FloatArray

# The colours of Okabe and Ito, which people with any colour vision tell apart, without
# yellow.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
INK = "#222222"
MUTED = "#666666"
GRID = "#E4E4E4"
BAND_OPACITY = 0.18
FAINT_OPACITY = 0.3
BIG, SMALL = 1e4, 1e-3  # axes beyond are labelled in thousands, or with an exponent
HUGE = 1e12  # and beyond this with an exponent again

# Viridis reversed, without its yellow, which is lost on white: even steps of lightness,
# in an order that people with any colour vision see (Smith and van der Walt, CC0).
SHADES = (
    "#BDDF26",
    "#7AD151",
    "#44BF70",
    "#22A884",
    "#21918C",
    "#2A788E",
    "#355F8D",
    "#414487",
    "#482475",
    "#440154",
)
MISSING_COLOUR = "#AAAAAA"


class Shading(NamedTuple):
    """Colours of SHADES that show `values` (n,), named `name`, between `ends`; dark is
    most."""

    name: str
    values: FloatArray
    ends: tuple[float, float]


def rgb(colour: str) -> list[int]:
    """Red, green and blue of #RRGGBB."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def tinted(colour: int, tint: float) -> str:
    """A colour of PALETTE, by its index, mixed with a share `tint` of white, as
    #RRGGBB."""
    parts = rgb(PALETTE[colour % len(PALETTE)])
    return "#" + "".join(f"{round(part + tint * (255 - part)):02X}" for part in parts)


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
