"""The description of a chart: panels in rows and columns, and the content of each.

`picture` draws it by matplotlib, `page` by plotly. They choose places and sizes."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from slm_lab.charts.look import STROKES
from slm_lab.charts.statistics import Interval
from slm_lab.core.text import TextTable
from slm_lab.core.types import BoolArray, FloatArray

MAX_POINTS = 2000
"""Points per curve; a slide has fewer pixels across."""
MAX_COLUMNS = 4
"""The most panels side by side that are still readable on a slide."""
BAR_WIDTH = 0.74
"""The share of its place that a bar takes."""
HOLLOW = 0.18
"""The strength of colour inside a hollow bar."""
GROUP_GAP = 0.7
"""The gap between two groups of bars, in widths of a bar's place."""
GREY = 6
"""The colour of what other curves are compared with."""
NO_VALUES = "no values yet"
"""The note of a panel without curves."""

Style: TypeAlias = Literal["solid", "dashed", "faint"]
"""Solid: a result; dashed: one that rests on less data; faint: what a result was made
from."""


class Ink(NamedTuple):
    """A colour of the palette by its index; the less `strength`, the more white."""

    colour: int = 0
    strength: float = 1.0


def around(mean: FloatArray, std: FloatArray) -> Interval:
    """One standard deviation on each side."""
    return Interval(mean - std, mean + std)


class Curve(NamedTuple):
    """A line over `x` (P,), broken where `mean` (P,) is NaN, with an optional band,
    which has NaN where there is none. A curve without a `label` has no entry in the
    legend: it belongs to the labelled curve before it. Curves of several panels may
    share a label, and its entry."""

    label: str
    x: FloatArray
    mean: FloatArray
    band: Interval | None = None
    style: Style = "solid"
    ink: Ink = Ink()


class Bar(NamedTuple):
    """A bar from zero. Bars of one `group` stand beside each other."""

    label: str
    height: float
    """The height in units of the axis; NaN: only `text` is shown."""
    text: str
    mark: float
    """The height of a mark across the bar; NaN for none."""
    interval: tuple[float, float] = (np.nan, np.nan)
    """The ends of a line over the bar; NaN for none."""
    ink: Ink = Ink()
    hollow: bool = False
    group: str = ""
    hover: str = ""

    @property
    def fill(self) -> Ink:
        """The colour inside; its edge has the colour `ink`."""
        if self.hollow:
            return self.ink._replace(strength=HOLLOW)
        return self.ink


class Dots(NamedTuple):
    """Dots at x, y (n,), hollow unless `filled` (n,), coloured by the chart's shading.
    `hover` are their texts in lines, to which a page adds y under its `name`."""

    name: str
    x: FloatArray
    y: FloatArray
    filled: BoolArray
    hover: Sequence[Sequence[str]] = ()


class Shading(NamedTuple):
    """Colours of n dots or lines by their `values` (n,); dark is most."""

    name: str
    values: FloatArray


class Scale(NamedTuple):
    """An axis between `ends`. Its `categories` are at 0, 1, …; without any it has
    numbers, whole ones if `whole`. A page zooms axes with the same `link` together."""

    label: str = ""
    ends: tuple[float, float] = (0.0, 1.0)
    categories: tuple[str, ...] = ()
    log: bool = False
    whole: bool = False
    numbers: bool = True
    """Whether the texts of its ticks are shown."""
    link: str = ""

    def linked(self, link: str, is_outer: bool) -> "Scale":
        """The axis in one of the panels that share it; only outer panels name it."""
        return self._replace(link=link, numbers=is_outer, label=self.label * is_outer)


class Panel(NamedTuple):
    """Axes with curves, bars or dots; `note` is shown if there are none of these. A
    `title` and a smaller `hint` are above it. `base` is the height of a line across all
    bars."""

    x: Scale = Scale()
    y: Scale = Scale()
    title: str = ""
    hint: str = ""
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


class Parallel(NamedTuple):
    """Parallel axes with a line for each of n values (n,); pages only."""

    axes: tuple[tuple[Scale, FloatArray], ...]


class Table(NamedTuple):
    """A table with a colour before each row, if there are `inks`."""

    text: TextTable
    inks: tuple[Ink, ...] = ()

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The header and the rows; their first column is a sample of the colour."""
        rows = [self.text.header, *self.text.rows]
        if not self.inks:
            return rows
        samples = ["", *["━━"] * len(self.text.rows)]
        return [(sample, *row) for sample, row in zip(samples, rows, strict=True)]

    @property
    def left(self) -> set[int]:
        """The columns that are aligned to the left."""
        if self.inks:
            return {0, self.text.words + 1}
        return {self.text.words}


Part: TypeAlias = Panel | Parallel
Cells: TypeAlias = tuple[tuple[Part | None, ...], ...]


class Place(NamedTuple):
    """A part, its upper left cell in the grid, and the number of cells it covers."""

    part: Part
    row: int
    column: int
    height: int = 1
    width: int = 1


class Chart(NamedTuple):
    """Panels in `rows` of equally many cells, under a title and over a table and notes.
    A part that covers several cells is in each of them; None is an empty cell."""

    title: str
    subtitle: str
    rows: Cells = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()
    legend: bool = False
    """Whether labelled curves are named below the panels."""
    linked: bool = False
    """Whether the pointer in one panel of a page acts on all."""
    shading: Shading | None = None
    paper_width: float | None = None
    """The width of a chart for print, in 1/72 inch; None for a screen."""
    about: str = ""
    """A text that the file keeps, such as the command that made it."""

    @property
    def columns(self) -> int:
        """The number of cells in a row."""
        return max(map(len, self.rows), default=1)

    @property
    def places(self) -> list[Place]:
        """The parts, in reading order."""
        places: dict[int, Place] = {}
        for i, row in enumerate(self.rows):
            for j, part in enumerate(row):
                if part is None:
                    continue
                first = places.get(id(part), Place(part, i, j))
                height = i - first.row + 1
                width = j - first.column + 1
                places[id(part)] = first._replace(height=height, width=width)
        return list(places.values())

    @property
    def panels(self) -> list[Panel]:
        """The parts that are panels."""
        return [place.part for place in self.places if isinstance(place.part, Panel)]

    @property
    def named(self) -> list[Curve]:
        """The first curve of each label, results first."""
        curves: dict[str, Curve] = {}
        for panel in self.panels:
            for curve in panel.curves:
                curves.setdefault(curve.label, curve)
        curves.pop("", None)
        return sorted(curves.values(), key=lambda curve: STROKES[curve.style].rank)


def bar_places(bars: Sequence[Bar]) -> FloatArray:
    """(n,): the places of bars, 1 apart in a group, the first at 0."""
    apart = [bar.group != before.group for before, bar in pairwise(bars)]
    new_groups = np.concatenate([[0], np.cumsum(apart)])[: len(bars)]
    return np.arange(len(bars)) + GROUP_GAP * new_groups


def group_places(bars: Sequence[Bar]) -> dict[str, float]:
    """The middle of each named group of bars."""
    places: dict[str, list[float]] = {}
    for bar, place in zip(bars, bar_places(bars), strict=True):
        if bar.group:
            places.setdefault(bar.group, []).append(float(place))
    return {group: float(np.mean(members)) for group, members in places.items()}


def single(title: str, subtitle: str, panel: Panel) -> Chart:
    """One panel over a legend."""
    return Chart(title, subtitle, ((panel,),), legend=True)


def grid(panels: Sequence[Panel], most: int = MAX_COLUMNS) -> Cells:
    """About as many rows as columns, of which there are at most `most`."""
    square = int(np.ceil(np.sqrt(len(panels))))
    columns = max(min(square, most), 1)
    empty = [None] * (-len(panels) % columns)
    cells = [*panels, *empty]
    return tuple(
        tuple(cells[first : first + columns]) for first in range(0, len(cells), columns)
    )


def curves_panel(
    x: str,
    y: str,
    curves: Sequence[Curve],
    title: str = "",
    note: str = NO_VALUES,
    log: bool = False,
    log_x: bool = False,
) -> Panel:
    """The curves that have points, over axes that show all of them. A `log` axis leaves
    out heights of zero or less."""
    curves = [curve for curve in curves if curve.x.size]
    if log:
        curves = [positive(curve) for curve in curves]
    across = limits([curve.x for curve in curves], margin=0.01, log=log_x)
    heights = [curve.mean for curve in curves]
    heights += [end for curve in curves for end in curve.band or ()]
    return Panel(
        Scale(x, across, log=log_x),
        Scale(y, limits(heights, margin=0.06, log=log), log=log),
        title=title,
        curves=tuple(curves),
        note=note,
    )


def positive(curve: Curve) -> Curve:
    """The curve without its heights of zero or less; its band ends above them."""
    mean = np.where(curve.mean > 0, curve.mean, np.nan)
    if curve.band is None:
        return curve._replace(mean=mean)
    low, high = (np.where(curve.mean > 0, end, np.nan) for end in curve.band)
    above = np.concatenate([end[end > 0] for end in (mean, low)])
    least = above.min(initial=np.inf)
    return curve._replace(mean=mean, band=Interval(np.maximum(low, least), high))


def alone(values: FloatArray) -> list[int]:
    """The indices of points without a neighbour, which a line does not show."""
    known = np.concatenate([[False], np.isfinite(values), [False]])
    is_alone = known[1:-1] & ~known[:-2] & ~known[2:]
    return np.flatnonzero(is_alone).tolist()


def level(y: float, curves: Iterable[Curve], label: str = "") -> Curve:
    """A dashed line at a height, as long as the curves."""
    x = np.array(limits([curve.x for curve in curves], margin=0.0))
    return Curve(label, x, np.full(2, y), style="dashed", ink=Ink(GREY, 0.6))


def limits(
    values: Iterable[FloatArray], margin: float, log: bool = False
) -> tuple[float, float]:
    """The ends of an axis that shows all finite `values`, wider by the share `margin`
    on each side. Values that are all alike to four digits lie in its middle."""
    numbers = np.concatenate([np.empty(0), *values])
    numbers = numbers[np.isfinite(numbers)]
    if log:
        low, high = limits([np.log10(numbers[numbers > 0])], margin)
        return 10.0**low, 10.0**high
    if not numbers.size:
        return 0.0, 1.0
    low = float(numbers.min())
    high = float(numbers.max())
    largest = max(abs(low), abs(high))
    if high - low <= 1e-4 * largest:
        middle = low / 2 + high / 2
        half = 0.06 * largest or 0.06
        return middle - half, middle + half
    wider = margin * (high - low)
    return low - wider, high + wider
