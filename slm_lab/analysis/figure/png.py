"""Figures and overviews as PNG, by matplotlib's object-oriented interface: no global state.

Sizes are pixels; a figure has 72 dots per inch, so that a point is a pixel.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, final

import numpy as np

from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.figure import (
    Curve,
    Figure,
    Overview,
    colour_of,
    in_legend_order,
    runs,
    tick_text,
    x_limits,
    y_limits,
)
from slm_lab.analysis.figure.panel_grid import cells, grid_shape
from slm_lab.core.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.legend import Legend

Align: TypeAlias = Literal["left", "center", "right"]

DPI = 72
"""Dots per inch: a point is a pixel."""
_COLOURS = 256  # of a PNG with a palette, a third of the size of one without
_ALMOST_WHITE = 252
_SMALLEST = 9  # letters that can be read
_LINE_WIDTH = {"solid": 0.15, "dashed": 0.115, "faint": 0.06}  # of a letter
_DASH = (0.0, (3.0, 1.5))  # of the line's width
_CROWDED = 0.6  # of a line's width, if it has more points than its axes have pixels across

_SIZE = (1280, 716)
_WIDTH = 1600
_TOP, _FOOT, _SIDE = 128, 74, 34  # title, numbers and label of the x axis, margins at the sides
_CELL_HEIGHT = {1: 620, 2: 330}  # of a grid with so many rows
_LOW_CELL = 250  # of a grid with more
_NUMBERS, _BETWEEN, _HEADING = 72, 26, 50  # left of, right of and above a panel


class Box(NamedTuple):
    """A rectangle, from its lower left corner."""

    left: float
    bottom: float
    width: float
    height: float


@final
@dataclass(frozen=True)
class PanelStyle:
    """Size of the letters, and how many ticks an axis has at most."""

    text: float
    x_ticks: int
    y_ticks: int


LARGE = PanelStyle(text=23, x_ticks=8, y_ticks=6)
WIDE = PanelStyle(text=20, x_ticks=8, y_ticks=6)
SMALL = PanelStyle(text=17, x_ticks=5, y_ticks=5)


@final
class Picture:
    """A white picture of `width` × `height` pixels; places are counted from its lower left."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Drawing

        self.width, self.height = round(width), round(height)
        size = self.width / DPI, self.height / DPI
        self.drawing = Drawing(size, DPI, facecolor="white")
        self._canvas = FigureCanvasAgg(self.drawing)

    def axes(self, box: Box, letters: float) -> "Axes":
        """Axes that fill `box`, with a line below, a grid, and numbers outside."""
        w, h = self.width, self.height
        axes = self.drawing.add_axes((box.left / w, box.bottom / h, box.width / w, box.height / h))
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set(color=look.MUTED, linewidth=1.0)
        axes.set_axisbelow(True)
        axes.grid(color=look.GRID, linewidth=1.2)
        axes.tick_params(length=0, labelsize=letters, labelcolor=look.INK, pad=0.4 * letters)
        return axes

    def axes_for_pixels(self) -> "Axes":
        """Invisible axes over the whole picture, in pixels."""
        axes = self.drawing.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.width), ylim=(0, self.height))
        axes.axis("off")
        return axes

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        colour: str = look.INK,
        *,
        align: Align = "left",
        bold: bool = False,
        upwards: bool = False,
        room: float | None = None,
    ) -> float:
        """Writes one line with its baseline at `y`, or upwards along `x`, in smaller letters if it
        would take more than `room`; returns its width."""
        size = size if room is None else self.fitting(text, size, room, bold=bold)
        across: Align = "center" if upwards else align
        self.drawing.text(
            x / self.width,
            y / self.height,
            text,
            size=size,
            color=colour,
            weight="bold" if bold else "normal",
            ha=across,
            va="center" if upwards else "baseline",
            rotation=90 if upwards else 0,
            parse_math=False,
        )
        return self.text_width(text, size, bold=bold)

    def text_width(self, text: str, size: float, *, bold: bool = False) -> float:
        """Pixels from the beginning of `text` to its end."""
        from matplotlib.font_manager import FontProperties

        font = FontProperties(weight="bold" if bold else "normal", size=size)
        renderer = self._canvas.get_renderer()  # type: ignore[no-untyped-call]
        return float(renderer.get_text_width_height_descent(text, font, False)[0]) if text else 0.0

    def fitting(self, text: str, size: float, room: float, *, bold: bool = False) -> float:
        """The size of letters, `size` at most, with which `text` fits into `room` pixels."""
        while size > _SMALLEST and self.text_width(text, size, bold=bold) > room:
            size -= 1
        return size

    def heading(self, title: str, subtitle: str, left: float, size: float = 30) -> None:
        """Title and subtitle at the top."""
        room = self.width - 2 * left
        self.text(left, self.height - 54, title, size, bold=True, room=room)
        self.text(left, self.height - 93, subtitle, 0.75 * size, look.MUTED, room=room)

    def legend(
        self, curves: Sequence[Curve], x: float, y: float, size: float, columns: int = 20
    ) -> "Legend":
        """What the labelled curves are, row by row; (x, y) is the upper left corner."""
        from matplotlib.legend_handler import HandlerTuple

        curves = in_legend_order(curves)
        return self.drawing.legend(
            [_handle(curve, size) for curve in curves],
            [curve.label for curve in curves],
            handler_map={tuple: HandlerTuple(ndivide=1, pad=0)},
            loc="upper left",
            bbox_to_anchor=(x / self.width, y / self.height),
            ncols=min(columns, max(len(curves), 1)),
            fontsize=size,
            labelcolor=look.INK,
            frameon=False,
            borderpad=0.0,
            borderaxespad=0.0,
            handlelength=1.6,
            handletextpad=0.5,
            columnspacing=1.6,
        )

    def legend_width(self, curves: Sequence[Curve], size: float) -> float:
        """Pixels that a legend in one row takes from left to right."""
        labels = [curve.label for curve in curves if curve.label]
        return sum(3.7 * size + self.text_width(label, size) for label in labels) - 1.6 * size

    def png(self) -> bytes:
        """The picture as the bytes of a PNG file."""
        from PIL import Image

        self._canvas.draw()  # type: ignore[no-untyped-call]
        pixels = np.asarray(self._canvas.buffer_rgba())  # type: ignore[no-untyped-call]
        picture = Image.fromarray(pixels).convert("RGB")
        few = picture.quantize(_COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        # A palette colour is the mean of the colours that it replaces: white would become 254.
        palette = few.getpalette() or []
        few.putpalette([255 if part >= _ALMOST_WHITE else part for part in palette])
        buffer = io.BytesIO()
        few.save(buffer, format="png", compress_level=4)
        return buffer.getvalue()


def render_png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file, 1280 pixels wide."""
    picture = Picture(*_SIZE)
    box = Box(left=141, bottom=143, width=1100, height=455)
    draw_figure(picture, box, figure, figure.curves)
    picture.legend(figure.curves, box.left, 40, 23)
    return picture.png()


def draw_figure(picture: Picture, box: Box, figure: Figure, in_view: Sequence[Curve]) -> "Axes":
    """Heading, labels, and the curves `in_view`; the x axis shows all curves of the figure."""
    picture.heading(figure.title, figure.subtitle, 26)
    axes = picture.axes(box, LARGE.text)
    draw_curves(axes, in_view, x_limits(figure.curves), figure.note, LARGE)
    middle = box.left + box.width / 2
    picture.text(middle, box.bottom - 67, figure.x_label, 25, align="center")
    # At a fixed place, so that long numbers beside the axis never push it out of the picture.
    picture.text(36, box.bottom + box.height / 2, figure.y_label, 25, upwards=True)
    return axes


def render_overview_png(overview: Overview) -> bytes:
    """The overview as the bytes of a PNG file, 1600 pixels wide and as high as its rows need."""
    rows, columns = grid_shape(len(overview.panels))
    cell_width = (_WIDTH - 2 * _SIDE) / columns
    cell_height = _CELL_HEIGHT.get(rows, _LOW_CELL)
    picture = Picture(_WIDTH, _TOP + rows * cell_height + _FOOT)
    picture.heading(overview.title, overview.subtitle, _SIDE, 32)
    ends = x_limits([curve for panel in overview.panels for curve in panel.curves])
    style = SMALL if columns > 2 else WIDE
    for cell, panel in zip(cells(len(overview.panels)), overview.panels, strict=True):
        box = Box(
            left=_SIDE + cell.column * cell_width + _NUMBERS,
            bottom=picture.height - _TOP - (cell.row + 1) * cell_height,
            width=cell_width - _NUMBERS - _BETWEEN,
            height=cell_height - _HEADING,
        )
        axes = picture.axes(box, style.text)
        draw_curves(axes, panel.curves, ends, panel.note, style)
        axes.tick_params(labelbottom=cell.lowest and bool(panel.curves))
        draw_head(picture, box, panel.title, style.text, panel.curves)
        if cell.lowest:
            x, y = box.left + box.width / 2, box.bottom - 3 * style.text
            picture.text(x, y, overview.x_label, style.text, look.MUTED, align="center")
    return picture.png()


def draw_head(
    picture: Picture, box: Box, title: str, size: float, curves: Sequence[Curve] = ()
) -> None:
    """A title above a panel, and beside it what its curves are."""
    y = box.bottom + box.height + 0.65 * size
    width = picture.text(box.left, y, title, 1.12 * size, bold=True, room=box.width)
    if any(curve.label for curve in curves):
        x = box.left + width + 0.9 * size
        room, wanted = box.left + box.width - x, picture.legend_width(curves, 0.9 * size)
        letters = 0.9 * size * min(1.0, max(room / wanted, 0.5))
        picture.legend(curves, x, y + 0.85 * letters, letters)


def draw_curves(
    axes: "Axes", curves: Sequence[Curve], ends: tuple[float, float], note: str, style: PanelStyle
) -> None:
    """Curves with their bands; `note` stands in their place if there are none."""
    if not curves:
        axes.set(xticks=[], yticks=[])
        letters = 1.15 * style.text
        axes.text(0.5, 0.5, note, transform=axes.transAxes, size=letters, color=look.MUTED,
                  ha="center", va="center", parse_math=False)  # fmt: skip
        return
    set_axis(axes.xaxis, ends, style.x_ticks)
    set_axis(axes.yaxis, y_limits(curves), style.y_ticks)
    for curve in sorted(curves, key=lambda curve: curve.style != "faint"):
        _draw_curve(axes, curve, style.text)


def set_axis(axis: "Axis", ends: tuple[float, float], most: int) -> None:
    """Ends, and round numbers between them, at most so many."""
    axis.axes.set(**{f"{axis.axis_name}lim": ends})  # type: ignore[attr-defined]
    largest = max(map(abs, ends))
    at = ticks(ends, most)
    axis.set_ticks(at, [tick_text(value, largest) for value in at])


def ticks(ends: tuple[float, float], most: int) -> list[float]:
    """Round numbers between the `ends` of an axis, at most so many."""
    from matplotlib.ticker import MaxNLocator

    values = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(*ends)
    return [float(value) for value in values if ends[0] <= value <= ends[1]]


def _draw_curve(axes: "Axes", curve: Curve, size: float) -> None:
    colour, opacity = colour_of(curve), _opacity(curve)
    if curve.std is not None:
        low, high = curve.mean - curve.std, curve.mean + curve.std
        axes.fill_between(curve.x, low, high, color=colour, alpha=look.BAND_OPACITY, linewidth=0)
        alone = _alone(low)
        axes.vlines(curve.x[alone], low[alone], high[alone], colour, alpha=0.5, linewidth=2.0)
    crowded = len(curve.x) > axes.bbox.width
    width = _LINE_WIDTH[curve.style] * size * (_CROWDED if crowded else 1.0)
    dash = _DASH if curve.style == "dashed" else "solid"
    axes.plot(curve.x, curve.mean, color=colour, alpha=opacity, linewidth=width, linestyle=dash,
              solid_joinstyle="round", zorder=2.5)  # fmt: skip
    alone = _alone(curve.mean)
    axes.plot(curve.x[alone], curve.mean[alone], "o", color=colour, alpha=opacity,
              markersize=0.45 * size, markeredgewidth=0, zorder=2.5)  # fmt: skip


def _alone(values: FloatArray) -> BoolArray:
    """Points without a neighbour: a line or band of one point has no length."""
    alone = np.zeros(len(values), np.bool_)
    for stretch in runs(np.isfinite(values)):
        alone[stretch.start] = stretch.stop - stretch.start == 1
    return alone


def _handle(curve: Curve, size: float) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    line = Line2D([], [], color=colour_of(curve), alpha=_opacity(curve),
                  linestyle=_DASH if curve.style == "dashed" else "solid",
                  linewidth=_LINE_WIDTH[curve.style] * size)  # fmt: skip
    if curve.std is None:
        return line
    return Patch(facecolor=colour_of(curve), alpha=look.BAND_OPACITY, linewidth=0), line


def _opacity(curve: Curve) -> float:
    return look.FAINT_OPACITY if curve.style == "faint" else 1.0
