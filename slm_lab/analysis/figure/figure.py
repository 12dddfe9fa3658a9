"""The description of a figure that both renderers draw, and the look they share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np

from slm_lab.core.types import BoolArray, FloatArray

MAX_POINTS = 2000
"""Points per curve; a slide has fewer pixels across."""

# The colours of Okabe and Ito, which people with any colour vision tell apart, without yellow.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
INK = "#222222"
MUTED = "#666666"
GRID = "#E4E4E4"
BIG, SMALL = 1e4, 1e-3  # axes beyond are labelled in thousands, or with an exponent
HUGE = 1e12  # and beyond this with an exponent again
BAND_OPACITY = 0.18
FAINT_OPACITY = 0.3

Style: TypeAlias = Literal["solid", "dashed", "faint"]
"""A result; a result that rests on less; what a result was made from."""


@final
@dataclass(frozen=True)
class Curve:
    """A line over `x` (P,), broken where `mean` (P,) is NaN; `std` (P,) puts a band around it.

    `colour` is an index into PALETTE, `tint` the share of white in it. Without a `label` the curve
    is not in the legend.
    """

    label: str
    x: FloatArray
    mean: FloatArray
    std: FloatArray | None = None
    colour: int = 0
    style: Style = "solid"
    tint: float = 0.0


@final
@dataclass(frozen=True)
class Figure:
    """One pair of axes. `note` is shown in the middle when there is nothing to draw."""

    title: str
    subtitle: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    note: str = ""


@final
@dataclass(frozen=True)
class Panel:
    """One of the small pictures of an Overview. Labels of its curves are beside its title."""

    title: str
    curves: tuple[Curve, ...]
    note: str = ""


@final
@dataclass(frozen=True)
class Overview:
    """Panels in a grid that share the x axis, each with a y axis of its own."""

    title: str
    subtitle: str
    x_label: str
    panels: tuple[Panel, ...]


def colour_of(curve: Curve) -> str:
    """The colour as #RRGGBB."""
    return tinted(curve.colour, curve.tint)


def tinted(colour: int, tint: float) -> str:
    """A colour of PALETTE, by its index, with a share `tint` of white in it, as #RRGGBB."""
    full = PALETTE[colour % len(PALETTE)]
    parts = [int(full[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + tint * (255 - part)):02X}" for part in parts)


def in_legend_order(curves: Sequence[Curve]) -> list[Curve]:
    """The curves that have a label, results first."""
    order: tuple[Style, ...] = ("solid", "dashed", "faint")
    labelled = [curve for curve in curves if curve.label]
    return sorted(labelled, key=lambda curve: order.index(curve.style))


def limits(values: Sequence[FloatArray], margin: float) -> tuple[float, float]:
    """The ends of an axis that shows all finite `values`, wider by `margin`, a share, on each side.

    Values that are all alike to four digits are shown as a flat line.
    """
    finite = [v[np.isfinite(v)] for v in values]
    finite = [v for v in finite if v.size]
    if not finite:
        return 0.0, 1.0
    low = min(float(v.min()) for v in finite)
    high = max(float(v.max()) for v in finite)
    largest = max(abs(low), abs(high))
    if high - low <= 1e-4 * largest:
        middle, half = low / 2 + high / 2, 0.06 * largest or 0.06
        return middle - half, middle + half
    wider = margin * (high - low)
    return low - wider, high + wider


def x_limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """The ends of the x axis that `curves` share."""
    return limits([curve.x for curve in curves], margin=0.01)


def y_limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """The ends of the y axis of `curves` and their bands."""
    spreads = [0.0 if curve.std is None else curve.std for curve in curves]
    pairs = list(zip(curves, spreads, strict=True))
    low, high = [c.mean - s for c, s in pairs], [c.mean + s for c, s in pairs]
    return limits([*low, *high, *(c.mean for c in curves)], margin=0.06)


def runs(mask: BoolArray) -> list[slice]:
    """The stretches of consecutive True in `mask` (P,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def tick_text(value: float, largest: float) -> str:
    """A tick's text on an axis that reaches to `largest`: 50k, 1.5M, 1250, 0.02, 2.5e−4, 3e15."""
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
