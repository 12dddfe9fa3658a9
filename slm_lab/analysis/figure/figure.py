"""The description of a figure, which one function draws as PNG and another as a page.

Places are pixels of the PNG, counted from its lower left corner. A page stretches them.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from slm_lab.analysis.figure.look import FAINT_OPACITY, Shading, round_numbers, tick_text, tinted
from slm_lab.analysis.table import TextTable
from slm_lab.core.types import BoolArray, FloatArray

MAX_POINTS = 2000
"""Points per curve; a slide has fewer pixels across."""

Style: TypeAlias = Literal["solid", "dashed", "faint"]
"""A result; a result that rests on less data; what a result was made from."""


class Band(NamedTuple):
    """The ends of what lies around a curve, (P,) each; NaN where there is none."""

    low: FloatArray
    high: FloatArray


def around(mean: FloatArray, std: FloatArray) -> Band:
    """One standard deviation on each side."""
    return Band(mean - std, mean + std)


class Curve(NamedTuple):
    """A line over `x` (P,), broken where `mean` (P,) is NaN, with an optional band.

    `colour` is an index into PALETTE, `tint` the share of white in it. A curve without a `label`
    has no entry in the legend: it belongs to the labelled curve before it.
    """

    label: str
    x: FloatArray
    mean: FloatArray
    band: Band | None = None
    colour: int = 0
    style: Style = "solid"
    tint: float = 0.0

    @property
    def ink(self) -> str:
        """The colour as #RRGGBB."""
        return tinted(self.colour, self.tint)

    @property
    def opacity(self) -> float:
        """The opacity of the line."""
        return FAINT_OPACITY if self.style == "faint" else 1.0


class Bar(NamedTuple):
    """A bar at `place`, or only its `text` if `height` is None.

    A line from `low` to `high` is drawn over it, and a mark across it at `mark`. A `hollow` bar
    is pale. `text` stands in the bar, or at its end if bars are horizontal; `hover` is markup.
    """

    place: float
    label: str
    height: float | None
    low: float
    high: float
    mark: float
    text: str
    colour: int = 0
    tint: float = 0.0
    hollow: bool = False
    group: str = ""
    hover: str = ""


class Dots(NamedTuple):
    """Dots at x, y (n,), hollow unless `filled`. `hover` (n,) are their texts as markup, to which a
    page adds y under its `name`."""

    name: str
    x: FloatArray
    y: FloatArray
    colours: Sequence[str]
    filled: Sequence[bool]
    hover: Sequence[str] = ()


class Scale(NamedTuple):
    """An axis between `ends`, with `ticks` as pairs of place and text, or round numbers.

    There are at most `most` round numbers, whole ones if `whole`. A `log` axis counts in powers of
    ten. Texts of ticks are shown if `numbers`, and written `upwards` where they have no room. Axes
    with the same `link` show the same stretch when a page is zoomed.
    """

    label: str = ""
    ends: tuple[float, float] = (0.0, 1.0)
    most: int = 6
    ticks: tuple[tuple[float, str], ...] = ()
    log: bool = False
    whole: bool = False
    numbers: bool = True
    upwards: bool = False
    link: str = ""

    @property
    def labelled(self) -> list[tuple[float, str]]:
        """The ticks."""
        largest = max(map(abs, self.ends))
        at = [place for place, _ in self.ticks] or round_numbers(self.ends, self.most)
        texts = dict(self.ticks)
        return [
            (place, texts.get(place) or tick_text(place, largest))
            for place in at
            if not self.whole or place == int(place)
        ]


class Box(NamedTuple):
    """A rectangle, from its lower left corner."""

    left: float
    bottom: float
    width: float
    height: float

    @property
    def top(self) -> float:
        """Its upper edge."""
        return self.bottom + self.height

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.left + self.width


Keys: TypeAlias = tuple[tuple[str, str], ...]
"""What colours and marks stand for: pairs of a colour and a text."""


class Panel(NamedTuple):
    """Axes with curves, bars or dots; `note` is shown in the middle if there are none of these.

    Above it are `title` and `keys`, side by side, and `hint` below them. `base` is the height of a
    line across all bars; bars with different groups have the group's name below them.
    """

    box: Box
    x: Scale
    y: Scale
    title: str = ""
    hint: str = ""
    keys: Keys = ()
    curves: tuple[Curve, ...] = ()
    bars: tuple[Bar, ...] = ()
    horizontal: bool = False
    base: float | None = None
    dots: Dots | None = None
    note: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether only the note is shown."""
        return not self.curves and not self.bars and self.dots is None


class Table(NamedTuple):
    """A table that fills `box`; `swatches` are the colours of its rows, #RRGGBB, or empty."""

    box: Box
    table: TextTable
    swatches: tuple[str, ...] = ()

    @property
    def row(self) -> float:
        """The height of a row."""
        return self.box.height / (len(self.table.rows) + 1)


class Parallel(NamedTuple):
    """Parallel axes with a line for each of n values (n,), coloured by `shading`; pages only."""

    box: Box
    axes: tuple[tuple[Scale, FloatArray], ...]
    shading: Shading


class Words(NamedTuple):
    """A line of text at a place, with an optional hint beside it in smaller grey letters."""

    left: float
    bottom: float
    text: str
    size: float
    heading: bool = False
    hint: str = ""


class Figure(NamedTuple):
    """Parts under a title. `inner` is what a page stretches to the size of its window.

    `letters` is the size of the letters at axes. `legend` is the size of its letters and the number
    of its columns: a legend of all curves at the bottom. Pointing into a panel of a `linked` figure
    acts on all. `shading` is a scale of colours at the top.
    """

    title: str
    subtitle: str
    parts: tuple["Panel | Table | Parallel | Words", ...]
    width: float
    height: float
    inner: Box
    letters: float
    legend: tuple[float, int] | None = None
    linked: bool = False
    shading: Shading | None = None

    @property
    def panels(self) -> list[Panel]:
        """The parts that are panels."""
        return [part for part in self.parts if isinstance(part, Panel)]

    @property
    def curves(self) -> list[Curve]:
        """The curves of all panels."""
        return [curve for panel in self.panels for curve in panel.curves]


def in_legend_order(curves: Iterable[Curve]) -> list[Curve]:
    """The curves that have a label, results first."""
    order: tuple[Style, ...] = ("solid", "dashed", "faint")
    labelled = [curve for curve in curves if curve.label]
    return sorted(labelled, key=lambda curve: order.index(curve.style))


def limits(values: Iterable[FloatArray], margin: float) -> tuple[float, float]:
    """The ends of an axis that shows all finite `values`, wider by the share `margin` on each side.
    Values that are all alike to four digits are shown as a flat line."""
    every = np.concatenate([np.empty(0), *values])
    every = every[np.isfinite(every)]
    if not every.size:
        return 0.0, 1.0
    low, high = float(every.min()), float(every.max())
    largest = max(abs(low), abs(high))
    if high - low <= 1e-4 * largest:
        middle, half = low / 2 + high / 2, 0.06 * largest or 0.06
        return middle - half, middle + half
    wider = margin * (high - low)
    return low - wider, high + wider


def x_limits(curves: Iterable[Curve]) -> tuple[float, float]:
    """The ends of the x axis that `curves` share."""
    return limits([curve.x for curve in curves], margin=0.01)


def y_limits(curves: Iterable[Curve]) -> tuple[float, float]:
    """The ends of the y axis of `curves` and their bands."""
    return limits([end for c in curves for end in (c.mean, *(c.band or ()))], margin=0.06)


def runs(mask: BoolArray) -> list[slice]:
    """The stretches of consecutive True in `mask` (P,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
