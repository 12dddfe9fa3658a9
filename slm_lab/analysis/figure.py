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
BAND_OPACITY = 0.18
FAINT_OPACITY = 0.3

Style: TypeAlias = Literal["solid", "dashed", "faint"]
"""A result; a result that rests on less; what a result was made from."""


@final
@dataclass(frozen=True)
class Curve:
    """A line over `x` (P,), broken where `mean` (P,) is NaN; `std` (P,) puts a band around it.

    `colour` is an index into PALETTE. Without a `label` the curve is not in the legend.
    """

    label: str
    x: FloatArray
    mean: FloatArray
    std: FloatArray | None = None
    colour: int = 0
    style: Style = "solid"


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


def colour_of(curve: Curve) -> str:
    """The colour as #RRGGBB."""
    return PALETTE[curve.colour % len(PALETTE)]


def in_legend_order(curves: Sequence[Curve]) -> list[Curve]:
    """The curves that have a label, results first."""
    order: tuple[Style, ...] = ("solid", "dashed", "faint")
    labelled = [curve for curve in curves if curve.label]
    return sorted(labelled, key=lambda curve: order.index(curve.style))


def runs(mask: BoolArray) -> list[slice]:
    """The stretches of consecutive True in `mask` (P,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def tick_text(value: float, largest: float) -> str:
    """A tick's text on an axis that reaches to `largest`: 50k, 1.5M, 1250, 0.02, 2.5e−4."""
    if largest >= BIG:
        for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= size * (1 - 1e-9):
                return _with_minus(f"{value / size:.6g}{suffix}")
    if 0 < largest < SMALL and value:
        exponent = math.floor(math.log10(largest) + 1e-9)
        return _with_minus(f"{value / 10.0**exponent:.6g}e{exponent}")
    return _with_minus(f"{value + 0.0:.6g}")  # + 0.0 turns −0 into 0


def _with_minus(number: str) -> str:
    return number.replace("-", "−")
