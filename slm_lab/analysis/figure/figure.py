"""The description of a figure, which one function draws as PNG and another as a page.

Places are pixels of the PNG, counted from its upper left corner. A page stretches
them."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from slm_lab.analysis.figure.look import (
    FAINT_OPACITY,
    PALETTE,
    Shading,
    tick_text,
    tinted,
)
from slm_lab.core.text import TextTable
from slm_lab.core.types import BoolArray, FloatArray

MAX_POINTS = 2000
"""Points per curve; a slide has fewer pixels across."""
BAR_WIDTH = 0.74
"""The share of its place that a bar takes."""
HOLLOW = 0.82
"""The share of white in a hollow bar."""
LETTER = 0.62
"""The width of a usual letter, as a share of its size."""
_LONGEST = 32  # letters of a name above a column
_LEVEL_TINT = 0.45
_MOST_DECADES = 6
_LARGE_EXPONENT = 5

Style: TypeAlias = Literal["solid", "dashed", "faint"]
"""A result; a result that rests on less data; what a result was made from."""


class Band(NamedTuple):
    """The ends of what lies around a curve, (P,) each; NaN where it is missing."""

    low: FloatArray
    high: FloatArray


def around(mean: FloatArray, std: FloatArray) -> Band:
    """One standard deviation on each side."""
    return Band(mean - std, mean + std)


class Curve(NamedTuple):
    """A line over `x` (P,), broken where `mean` (P,) is NaN, with an optional band.
    `colour` is an index into PALETTE, `tint` the share of white in it. A curve without
    a `label` has no entry in the legend: it belongs to the labelled curve before it."""

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

    def mapped(self, function: Callable[[FloatArray], FloatArray]) -> "Curve":
        """The curve with a function of its heights, such as their logarithm."""
        band = None if self.band is None else Band(*map(function, self.band))
        return self._replace(mean=function(self.mean), band=band)

    @property
    def rank(self) -> int:
        """Its place in a legend: results come first."""
        return get_args(Style).index(self.style)


class Bar(NamedTuple):
    """A bar at a place of its axis. Bars of one `group` stand beside each other."""

    place: float
    label: str
    height: float | None
    """None: only `text` is shown."""
    low: float
    high: float
    """The ends of a line over the bar, such as an interval."""
    mark: float
    """The place of a mark across the bar."""
    text: str
    """Stands in the bar, or at its end if bars are horizontal."""
    colour: int = 0
    tint: float = 0.0
    """The share of white in its colour."""
    hollow: bool = False
    """Whether only its edge has the full colour."""
    group: str = ""
    hover: str = ""
    """The text at the pointer, as markup."""

    @property
    def ink(self) -> str:
        """The colour of its edge as #RRGGBB."""
        return tinted(self.colour, self.tint)

    @property
    def fill(self) -> str:
        """The colour inside."""
        return tinted(self.colour, HOLLOW if self.hollow else self.tint)


class Dots(NamedTuple):
    """Dots at x, y (n,), hollow unless `filled`, in the colours of the figure's
    shading. `hover` (n,) are their texts as markup, to which a page adds y under its
    `name`."""

    name: str
    x: FloatArray
    y: FloatArray
    filled: BoolArray
    hover: Sequence[str] = ()


class Scale(NamedTuple):
    """An axis between `ends`, with `ticks` as pairs of place and text, or round
    numbers. There are at most `most` round numbers, whole ones if `whole`. A `log` axis
    counts in powers of ten. Texts of ticks are shown if `numbers`. Axes with the same
    `link` show the same stretch when a page is zoomed."""

    label: str = ""
    ends: tuple[float, float] = (0.0, 1.0)
    most: int = 6
    ticks: tuple[tuple[float, str], ...] = ()
    log: bool = False
    whole: bool = False
    numbers: bool = True
    link: str = ""

    @property
    def has_names(self) -> bool:
        """Whether its ticks are categories."""
        return bool(self.ticks) and not self.log


class Box(NamedTuple):
    """A rectangle, from its upper left corner."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.top + self.height

    def inset(
        self, left: float = 0, top: float = 0, right: float = 0, bottom: float = 0
    ) -> "Box":
        """The box without these margins."""
        size = self.width - left - right, self.height - top - bottom
        return Box(self.left + left, self.top + top, *size)

    def cells(self, rows: int, columns: int) -> list["Box"]:
        """The boxes of a grid that fills it, row by row."""
        width, height = self.width / columns, self.height / rows
        return [
            Box(self.left + column * width, self.top + row * height, width, height)
            for row in range(rows)
            for column in range(columns)
        ]


Keys: TypeAlias = tuple[tuple[str, str], ...]
"""What colours and marks stand for: pairs of a colour and a text."""


class Panel(NamedTuple):
    """Axes with curves, bars or dots; `note` is shown in the middle if there are none
    of these. Above it are `title` and `keys`, side by side, and `hint` below them.
    `base` is the height of a line across all bars; bars with different groups have the
    group's name below them."""

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

    @property
    def groups(self) -> dict[str, list[float]]:
        """The places of the bars of each group."""
        found: dict[str, list[float]] = {}
        for bar in self.bars:
            found.setdefault(bar.group, []).append(bar.place)
        return found


class Table(NamedTuple):
    """A table that fills `box`; `swatches` are the colours of its rows, #RRGGBB, or
    empty."""

    box: Box
    table: TextTable
    swatches: tuple[str, ...] = ()

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The header and the rows, with the swatches as their first column."""
        marks = ("", *("━━" for _ in self.swatches))
        rows = [
            tuple(short(name, _LONGEST) for name in self.table.header),
            *self.table.rows,
        ]
        if not self.swatches:
            return rows
        return [(mark, *row) for mark, row in zip(marks, rows, strict=True)]

    @property
    def left(self) -> set[int]:
        """The columns that are aligned to the left."""
        return {0, self.table.words + 1} if self.swatches else {self.table.words}

    @property
    def letters(self) -> list[int]:
        """The width of each column."""
        return [max(map(len, column)) + 4 for column in zip(*self.cells, strict=True)]


class Parallel(NamedTuple):
    """Parallel axes with a line for each of n values (n,), coloured by `shading`; pages
    only."""

    box: Box
    axes: tuple[tuple[Scale, FloatArray], ...]
    shading: Shading


class TextLine(NamedTuple):
    """A line of text on the line `base`, with an optional hint beside it in smaller
    letters."""

    left: float
    base: float
    text: str
    size: float
    heading: bool = False
    hint: str = ""


Part: TypeAlias = Panel | Table | Parallel | TextLine


class Figure(NamedTuple):
    """Parts under a title, `width` pixels wide. `letters` is the size of the letters at
    axes. With a `legend` all curves are named below the parts. Pointing into a panel of
    a `linked` figure acts on all. `shading` is a scale of colours at the top, for all
    dots. `about` is kept in the file."""

    title: str
    subtitle: str
    parts: tuple[Part, ...]
    width: float
    letters: float
    legend: bool = False
    linked: bool = False
    shading: Shading | None = None
    about: str = ""

    @property
    def inner(self) -> Box:
        """The box around all boxes, which a page stretches to the size of its
        window."""
        boxes = [part.box for part in self.parts if not isinstance(part, TextLine)]
        left, top = min(box.left for box in boxes), min(box.top for box in boxes)
        right, bottom = (
            max(box.right for box in boxes),
            max(box.bottom for box in boxes),
        )
        return Box(left, top, right - left, bottom - top)

    @property
    def panels(self) -> list[Panel]:
        """The parts that are panels."""
        return [part for part in self.parts if isinstance(part, Panel)]


def level(y: float, curves: Iterable[Curve], label: str = "") -> Curve:
    """A dashed line at a height, as long as the curves."""
    x = np.array(limits([curve.x for curve in curves], margin=0.0))
    return Curve(label, x, np.full(2, y), None, len(PALETTE) - 1, "dashed", _LEVEL_TINT)


def in_legend_order(curves: Iterable[Curve]) -> list[Curve]:
    """The curves that have a label, results first."""
    return sorted(
        (curve for curve in curves if curve.label), key=lambda curve: curve.rank
    )


def limits(values: Iterable[FloatArray], margin: float) -> tuple[float, float]:
    """The ends of an axis that shows all finite `values`, wider by the share `margin`
    on each side. Values that are all alike to four digits are shown as a flat line."""
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
    return limits(
        [end for c in curves for end in (c.mean, *(c.band or ()))], margin=0.06
    )


def y_scale(curves: Sequence[Curve], most: int) -> Scale:
    """The y axis of `curves`; with a single number if they never change."""
    means = [curve.mean[np.isfinite(curve.mean)] for curve in curves]
    known = np.concatenate([np.empty(0), *means])
    is_flat = known.size and np.ptp(known) == 0
    value = float(f"{known[0]:.3g}") if is_flat else 0.0
    ticks = ((float(known[0]), tick_text(value, abs(value))),) if is_flat else ()
    return Scale(ends=y_limits(curves), most=most, ticks=ticks)


def log_ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Ticks between powers of ten: at whole powers, if these are few also at 2 and 5
    times."""
    powers = range(math.ceil(low), math.floor(high) + 1)
    if len(powers) >= 3:
        powers = powers[:: -(-len(powers) // _MOST_DECADES)]
        if max(map(abs, powers)) >= _LARGE_EXPONENT:
            return tuple((float(k), f"1e{k}".replace("-", "−")) for k in powers)
        return tuple((float(k), tick_text(10.0**k, 10.0**k)) for k in powers)
    steps = [
        m * 10.0**k
        for k in range(math.floor(low), math.ceil(high) + 1)
        for m in (1, 2, 5)
    ]
    inside = [step for step in steps if low <= math.log10(step) <= high]
    if len(inside) < 2:
        inside = [
            float(f"{10.0 ** (low + share * (high - low)):.2g}") for share in (0.1, 0.9)
        ]
    return tuple((math.log10(step), tick_text(step, step)) for step in inside)


def runs(mask: BoolArray) -> list[slice]:
    """The stretches of consecutive True in `mask` (P,)."""
    edges = np.flatnonzero(
        np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))
    )
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def short(name: str, letters: int) -> str:
    """Its beginning and its end, if it has more `letters`."""
    before = 3 * letters // 5
    return (
        name
        if len(name) <= letters
        else f"{name[:before]}…{name[before + 1 - letters :]}"
    )
