"""Draws figures as PNG by matplotlib's object-oriented interface: no global state.

A figure has 72 dots per inch, so that a point is a pixel.
"""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import numpy as np

from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.figure import look
from slm_lab.analysis.figure.layout import LETTER, SIDE
from slm_lab.analysis.table import TextTable
from slm_lab.core.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Align: TypeAlias = Literal["left", "center", "right"]

BAR_WIDTH = 0.74
"""The share of its place that a bar takes."""
HOLLOW = 0.82
"""The share of white in a hollow bar."""

_DPI = 72
_COLOURS = 256  # of a PNG with a palette, a third of the size of one without
_ALMOST_WHITE = 252
_SMALLEST = 9  # letters that can be read
_LINE_WIDTH = {"solid": 0.15, "dashed": 0.115, "faint": 0.06}  # in letters
_DASH, _LONG_DASH = (0.0, (3.0, 1.5)), (0.0, (7.0, 4.0))  # in widths of the line
_CROWDED = 0.6  # of a line's width, if it has more points than its axes have pixels across
_PALE = 0.25  # the share of white from which on dark letters are easier to read
_DOTS = ((40, 12.0), (120, 10.0), (250, 8.0))  # the diameters of up to so many dots
_TINY, _DOT_OPACITY = 6.0, 0.9
_KEY, _KEY_STEPS = 300, 60  # pixels of the scale of colours, and its steps
_OVER = 6  # pixels by which texts of ticks may reach over the end of their axis
_TEXT = 18  # letters of a table


def render_png(figure: fig.Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    picture = _Picture(figure.width, figure.height)
    left = 26 if figure.legend else SIDE
    room = picture.width - 2 * left
    size = 26 if figure.width < 1500 else 32
    picture.text(left, picture.height - 54, figure.title, size, bold=True, room=room)
    under = 0.75 * size
    picture.text(left, picture.height - 93, figure.subtitle, under, look.MUTED, room=room)
    if figure.shading is not None:
        _draw_shading(picture, figure.shading)
    for part in figure.parts:
        match part:
            case fig.Panel():
                _draw_panel(picture, part, figure.letters)
            case fig.Table():
                _draw_table(picture, part)
            case fig.Words():
                colour = look.INK if part.heading else look.MUTED
                where, width = (part.left, part.bottom), picture.width - part.left - SIDE
                picture.text(*where, part.text, part.size, colour, bold=part.heading, room=width)
    if figure.legend is not None:
        _draw_legend(picture, figure.curves, *figure.legend, figure.inner.bottom - 104)
    return picture.png()


@final
class _Picture:
    """A white picture of `width` × `height` pixels; places are counted from its lower left."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Drawing

        self.width, self.height = round(width), round(height)
        size = self.width / _DPI, self.height / _DPI
        self.drawing = Drawing(size, _DPI, facecolor="white")
        self._canvas = FigureCanvasAgg(self.drawing)

    def axes(self, box: fig.Box, letters: float) -> "Axes":
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
        while room is not None and size > _SMALLEST and self.text_width(text, size, bold) > room:
            size -= 1
        self.drawing.text(
            x / self.width,
            y / self.height,
            text,
            size=size,
            color=colour,
            weight="bold" if bold else "normal",
            ha="center" if upwards else align,
            va="center" if upwards else "baseline",
            rotation=90 if upwards else 0,
            parse_math=False,
        )
        return self.text_width(text, size, bold)

    def text_width(self, text: str, size: float, bold: bool = False) -> float:
        """Pixels from the beginning of `text` to its end."""
        from matplotlib.font_manager import FontProperties

        font = FontProperties(weight="bold" if bold else "normal", size=size)
        renderer = self._canvas.get_renderer()  # type: ignore[no-untyped-call]
        return float(renderer.get_text_width_height_descent(text, font, False)[0]) if text else 0.0

    def line(self, x: tuple[float, float], y: float, colour: str, width: float) -> None:
        """A line across at `y`."""
        from matplotlib.lines import Line2D

        across, up = np.array(x) / self.width, np.full(2, y / self.height)
        self.drawing.add_artist(Line2D(across, up, color=colour, linewidth=width))

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


def _draw_panel(picture: _Picture, panel: fig.Panel, letters: float) -> None:
    box, middle = panel.box, panel.box.left + panel.box.width / 2
    axes = picture.axes(box, letters)
    _draw_head(picture, panel, letters)
    if panel.bars:
        x, y = box.left - 0.5 * letters, box.bottom - 1.35 * letters
        picture.text(x, y, panel.x.label, 0.8 * letters, look.MUTED, align="right")
    elif panel.x.label:
        y = box.bottom - 1.5 * letters - _depth(panel.x, letters)
        picture.text(middle, y, panel.x.label, 1.05 * letters, align="center", room=box.width)
    if panel.y.label:
        # At a fixed place, so that long numbers beside the axis never push it out of the picture.
        x, y = box.left - 4.6 * letters, box.bottom + box.height / 2
        picture.text(x, y, panel.y.label, 1.05 * letters, upwards=True, room=box.height + 30)
    if panel.is_empty:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, panel.note, transform=axes.transAxes, size=1.15 * letters,
                  color=look.MUTED, ha="center", va="center", parse_math=False)  # fmt: skip
        return
    _set_axis(axes.xaxis, panel.x)
    _set_axis(axes.yaxis, panel.y)
    for curve in sorted(panel.curves, key=lambda curve: curve.style != "faint"):
        _draw_curve(axes, curve, letters)
    if panel.bars:
        _draw_bars(picture, axes, panel, letters)
    if panel.dots is not None:
        _draw_dots(axes, panel.dots)
        _keep_inside(axes, panel, letters)


def _keep_inside(axes: "Axes", panel: fig.Panel, letters: float) -> None:
    """Moves texts at the ends of an x axis, so that they stay beside those of the next panel."""
    from matplotlib.transforms import ScaledTranslation

    if not panel.x.numbers or panel.x.upwards:
        return
    low, high = panel.x.ends
    width = panel.box.width
    for label, (at, text) in zip(axes.get_xticklabels(), panel.x.labelled, strict=True):
        half = LETTER / 2 * letters * len(text) - _OVER
        before = (at - low) / (high - low) * width
        pixels = max(half - before, 0.0) - max(half - (width - before), 0.0)
        move = ScaledTranslation(pixels / _DPI, 0, axes.figure.dpi_scale_trans)
        label.set_transform(label.get_transform() + move)


def _draw_head(picture: _Picture, panel: fig.Panel, letters: float) -> None:
    """Title and keys above a panel, side by side; the hint, or the keys of bars, below them."""
    box, y, small = panel.box, panel.box.top + 0.65 * letters, 0.9 * letters
    if panel.hint:
        picture.text(box.left, y, panel.hint, small, look.MUTED, room=box.width)
    if panel.bars:
        _draw_keys(picture, panel.keys, box.left, y, box.width, small)
    y += 1.5 * letters * (bool(panel.hint) or bool(panel.bars and panel.keys))
    size = 1.12 * letters
    width = picture.text(box.left, y, panel.title, size, bold=True, room=box.width)
    if not panel.bars:
        x = box.left + width + 0.9 * letters
        _draw_keys(picture, panel.keys, x, y, box.right - x, small)


def _draw_keys(
    picture: _Picture, keys: fig.Keys, x: float, y: float, room: float, size: float
) -> None:
    """What colours and marks stand for, in one line, in smaller letters if there is less room."""
    wanted = sum(picture.text_width(text, size) + size for _, text in keys)
    size *= min(1.0, max(room / max(wanted, 1.0), 0.5))
    for colour, text in keys:
        x += picture.text(x, y, text, size, colour) + size


def _depth(scale: fig.Scale, letters: float) -> float:
    """Pixels that the texts of ticks take below an axis."""
    longest = max([len(text) for _, text in scale.ticks], default=0)
    return LETTER * letters * longest + 8 if scale.upwards else 1.4 * letters


def _set_axis(axis: "Axis", scale: fig.Scale) -> None:
    """Ends and ticks."""
    axis.axes.set(**{f"{axis.axis_name}lim": scale.ends})  # type: ignore[attr-defined]
    ticks = scale.labelled
    axis.set_ticks([at for at, _ in ticks], [text if scale.numbers else "" for _, text in ticks])
    if scale.upwards:
        axis.set_tick_params(labelrotation=90)


def _draw_curve(axes: "Axes", curve: fig.Curve, letters: float) -> None:
    colour, opacity = curve.ink, curve.opacity
    if curve.band is not None:
        low, high = curve.band
        axes.fill_between(curve.x, low, high, color=colour, alpha=look.BAND_OPACITY, linewidth=0)
        if (alone := _alone(low)).any():
            axes.vlines(curve.x[alone], low[alone], high[alone], colour, alpha=0.5, linewidth=2.0)
    crowded = len(curve.x) > axes.bbox.width
    width = _LINE_WIDTH[curve.style] * letters * (_CROWDED if crowded else 1.0)
    dash = _DASH if curve.style == "dashed" else "solid"
    axes.plot(curve.x, curve.mean, color=colour, alpha=opacity, linewidth=width, linestyle=dash,
              solid_joinstyle="round", zorder=2.5)  # fmt: skip
    if (alone := _alone(curve.mean)).any():
        axes.plot(curve.x[alone], curve.mean[alone], "o", color=colour, alpha=opacity,
                  markersize=0.45 * letters, markeredgewidth=0, zorder=2.5)  # fmt: skip


def _alone(values: FloatArray) -> BoolArray:
    """Points without a neighbour: a line or band of one point has no length."""
    alone = np.zeros(len(values), np.bool_)
    for stretch in fig.runs(np.isfinite(values)):
        alone[stretch.start] = stretch.stop - stretch.start == 1
    return alone


def _draw_legend(
    picture: _Picture, curves: Sequence[fig.Curve], size: float, columns: int, top: float
) -> None:
    """What the labelled curves are, read row by row, from `top` downwards."""
    from matplotlib.legend_handler import HandlerTuple

    curves = fig.in_legend_order(curves)
    # Matplotlib fills a legend column by column.
    curves = [curve for column in range(columns) for curve in curves[column::columns]]
    picture.drawing.legend(
        [_handle(curve, size) for curve in curves],
        [curve.label for curve in curves],
        handler_map={tuple: HandlerTuple(ndivide=1, pad=0)},
        loc="upper left",
        bbox_to_anchor=(26 / picture.width, top / picture.height),
        ncols=columns,
        fontsize=size,
        labelcolor=look.INK,
        frameon=False,
        borderpad=0.0,
        borderaxespad=0.0,
        handlelength=1.6,
        handletextpad=0.5,
        columnspacing=1.6,
    )


def _handle(curve: fig.Curve, size: float) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    line = Line2D([], [], color=curve.ink, alpha=curve.opacity,
                  linestyle=_DASH if curve.style == "dashed" else "solid",
                  linewidth=_LINE_WIDTH[curve.style] * size)  # fmt: skip
    if curve.band is None:
        return line
    return Patch(facecolor=curve.ink, alpha=look.BAND_OPACITY, linewidth=0), line


def _draw_bars(picture: _Picture, axes: "Axes", panel: fig.Panel, letters: float) -> None:
    """Upright bars and marks, and the names of their groups."""
    axes.grid(visible=False, axis="x")
    first, last = panel.x.ends
    step = panel.box.width / (last - first)
    for bar in panel.bars:
        _draw_bar(picture, axes, bar, step * BAR_WIDTH, letters)
    if panel.base is not None:
        axes.axhline(panel.base, color=look.MUTED, linewidth=0.09 * letters, linestyle=_LONG_DASH)
    for group, places in groups(panel.bars).items():
        x = panel.box.left + (places[0] / 2 + places[-1] / 2 - first) * step
        y, room = panel.box.bottom - 2.75 * letters, step * (len(places) + 0.5)
        picture.text(x, y, group, 1.05 * letters, align="center", bold=True, room=room)


def groups(bars: Sequence[fig.Bar]) -> dict[str, list[float]]:
    """The places of the bars of each group."""
    found: dict[str, list[float]] = {}
    for bar in bars:
        found.setdefault(bar.group, []).append(bar.place)
    return found


def _draw_bar(picture: _Picture, axes: "Axes", bar: fig.Bar, width: float, letters: float) -> None:
    colour, ink = look.tinted(bar.colour, bar.tint), look.MUTED
    if bar.height is not None:
        face = look.tinted(bar.colour, HOLLOW) if bar.hollow else colour
        line = 0.1 * letters
        axes.bar(bar.place, bar.height, BAR_WIDTH, color=face, edgecolor=colour, linewidth=line)
        ink = look.INK if bar.hollow or bar.tint > _PALE else "#FFFFFF"
    if bar.high > bar.low:
        axes.vlines(bar.place, bar.low, bar.high, look.INK, linewidth=0.1 * letters)
    upwards = picture.text_width(bar.text, letters) > width
    axes.annotate(bar.text, (bar.place, axes.get_ylim()[0]), (0, 0.5 * letters), size=letters,
                  color=ink, textcoords="offset points", ha="center", va="bottom",
                  rotation=90 if upwards else 0, parse_math=False)  # fmt: skip
    half = 0.6 * BAR_WIDTH
    axes.hlines(bar.mark, bar.place - half, bar.place + half, look.INK, linewidth=0.14 * letters)


def _draw_dots(axes: "Axes", dots: fig.Dots) -> None:
    diameter = next((size for most, size in _DOTS if len(dots.x) <= most), _TINY)
    filled = np.array(dots.filled, np.bool_)
    for full, these in ((True, filled), (False, ~filled)):
        colours = [colour for colour, chosen in zip(dots.colours, these, strict=True) if chosen]
        axes.scatter(
            dots.x[these],
            dots.y[these],
            s=(diameter if full else 0.82 * diameter) ** 2,
            facecolors=colours if full else "none",
            edgecolors="none" if full else colours,
            linewidths=0.0 if full else 0.18 * diameter,
            alpha=_DOT_OPACITY if full else 1.0,
            zorder=2.5,
            clip_on=False,
        )


def _draw_shading(picture: _Picture, shading: look.Shading) -> None:
    """The colours from the least to the most, at the right."""
    low, high = (look.tick_text(float(f"{end:.4g}"), 1.0) for end in shading.ends)
    y, end = picture.height - 130.0, float(picture.width - SIDE)
    end -= picture.text(end, y, high, 17, align="right") + 10
    length = min(_KEY, picture.width / 5)
    box = fig.Box(end - length, y - 2, length, 16)
    axes = picture.axes(box, 1)
    colours = [look.shade(i / (_KEY_STEPS - 1)) for i in range(_KEY_STEPS)]
    axes.bar(np.arange(_KEY_STEPS), 1, 1, align="edge", color=colours, linewidth=0)
    axes.set(xlim=(0, _KEY_STEPS), ylim=(0, 1))
    axes.axis("off")
    picture.text(box.left - 10, y, f"{shading.name}  {low}", 17, align="right")


def _draw_table(picture: _Picture, part: fig.Table) -> None:
    """All rows from the top of its box downwards; a swatch stands before each."""
    box, indent = part.box, 2.4 * _TEXT * bool(part.swatches)
    letters, ends = _columns(picture, part.table, box.width - indent)
    for i, cells in enumerate([part.table.header, *part.table.rows]):
        y = box.top - part.row * i - 22
        middle = y + 0.365 * _TEXT
        if i:
            picture.line((box.left, box.right), middle + part.row / 2, look.GRID, 1.2)
        if i and part.swatches:
            picture.line((box.left, box.left + 1.7 * _TEXT), middle, part.swatches[i - 1], 4.5)
        ink = look.INK if i else look.MUTED
        picture.text(box.left + indent, y, cells[0], letters, ink, bold=not i)
        for text, end in zip(cells[1:], ends, strict=True):
            picture.text(box.left + indent + end, y, text, letters, ink, align="right", bold=not i)


def _columns(picture: _Picture, table: TextTable, room: float) -> tuple[float, list[float]]:
    """The size of the letters with which all columns fit into `room` pixels, and where each but the
    first ends."""
    widths = [
        max(picture.text_width(text, _TEXT, not i) for i, text in enumerate(column))
        for column in zip(table.header, *table.rows, strict=True)
    ]
    gaps = len(widths) - 1
    shrunk = min(1.0, room / (sum(widths) + 1.5 * _TEXT * gaps))
    gap = (room - shrunk * sum(widths)) / gaps
    ends = np.cumsum([shrunk * width + gap for width in widths]) - gap
    return shrunk * _TEXT, ends[1:].tolist()
