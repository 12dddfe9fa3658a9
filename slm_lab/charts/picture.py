"""Draws charts as PNG, PDF and SVG by matplotlib's object-oriented interface, never
pyplot.

The constrained layout of matplotlib makes room for every text."""

import io
import textwrap
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np

from slm_lab.charts import look
from slm_lab.charts.chart import (
    BAR_WIDTH,
    GROUP_GAP,
    Chart,
    Curve,
    Dots,
    Panel,
    Place,
    Scale,
    Table,
    alone,
    bar_places,
    group_places,
    limits,
)
from slm_lab.core.recorded import recordable_text
from slm_lab.core.text import printable

Drawn: TypeAlias = Any
"""An object of matplotlib, whose own types are narrower than what it accepts."""
Form: TypeAlias = Literal["png", "pdf", "svg"]

_STYLE = Path(__file__).with_name("chart.mplstyle")
_POINTS = 72  # of an inch
_PRINT_DPI = 300
_PRINT_LETTERS = 8.0  # points
_COMPRESSION = 2  # a higher level takes time, and gives a file hardly smaller
# inches of a picture, and points of its letters, by the number of columns
_WIDTHS = {1: 12.8, 2: 12.8}
_WIDTH = 16.0
_NARROWEST = 2.2  # inches of a column
_LETTERS = {1: 16.0, 2: 14.0}
_SMALL_LETTERS = 12.0
_TITLE = 16.0
# height of a panel, as a share of a wide or narrow cell; at most, by the number of rows
_WIDE = 5.0
_FLAT = 0.6
_TALL = 0.7
_ROWS = {1: 5.3, 2: 3.3, 3: 2.6}
_LOW_ROW = 2.2
_TABLE_ROW = 1.9  # in letters
_LEFT = 0.2  # inches left of titles, notes and legend; half of them on paper
_CROWDED = 1000  # points, from which on lines are thinner
_CROWDED_SHARE = 0.6
_FEWEST = 4.0  # bars for which there is always room
_DARK = 0.75  # strength, from which on white letters are easier to read
_SHORT = 100.0  # times the least, up to which a logarithmic axis has ticks at 2 and 5
_SMALLEST = 0.8  # of the usual letters
_MOST_COLUMNS = 6  # of a legend
_SAMPLE = 4.0  # letters before a name in a legend
_DOT_OPACITY = 0.9
_DOT_AREA = 3000.0  # square points, of all dots of a panel
_DOT_SIZES = (16.0, 64.0)  # square points of one


def render_png(chart: Chart) -> bytes:
    """The chart as the bytes of a PNG file for screens."""
    with _style(chart):
        drawing = _Picture(chart).drawing
        content = io.BytesIO()
        # `savefig` would draw twice, to measure texts first: the layout has done so.
        drawing.canvas.print_png(
            content,
            metadata=_metadata(chart, "png"),
            pil_kwargs={"compress_level": _COMPRESSION},
        )
    return content.getvalue()


def render_print(chart: Chart, form: Form) -> bytes:
    """The chart for paper: PDF with TrueType fonts, SVG with texts as paths, or PNG
    with 300 dots per inch. The same chart gives the same bytes."""
    with _style(chart):
        drawing = _Picture(chart).drawing
        content = io.BytesIO()
        drawing.savefig(
            content, format=form, dpi=_PRINT_DPI, metadata=_metadata(chart, form)
        )
    return content.getvalue()


def _style(chart: Chart) -> AbstractContextManager[None]:
    """matplotlib's settings for the chart."""
    from matplotlib import rc_context

    return rc_context({"font.size": _letters(chart)}, _STYLE)


def _metadata(chart: Chart, form: Form) -> dict[str, str | None]:
    """What the file says of the chart, without a date."""
    word = "Subject" if form == "pdf" else "Description"
    dates = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    metadata: dict[str, str | None] = {**dates[form]}
    if chart.about:
        metadata[word] = recordable_text(chart.about, len(chart.about))
    return metadata


def _letters(chart: Chart) -> float:
    """The size of most letters, in points."""
    if chart.paper_width is not None:
        return _PRINT_LETTERS
    return _LETTERS.get(chart.columns, _SMALL_LETTERS)


@final
class _Picture:
    """A chart as a drawing of matplotlib. Lengths are in inches."""

    def __init__(self, chart: Chart) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._letters = _letters(chart)
        self._width = max(
            _WIDTHS.get(chart.columns, _WIDTH), _NARROWEST * chart.columns
        )
        if chart.paper_width is not None:
            self._width = chart.paper_width / _POINTS
        self._cell = self._width / chart.columns
        share = _TALL
        if self._cell > _WIDE:
            share = _FLAT
        highest = _ROWS.get(len(chart.rows), _LOW_ROW)
        self._row = min(share * self._cell, highest)
        self.drawing: Drawn = Figure((self._width, self._width))
        FigureCanvasAgg(self.drawing)
        self._samples: dict[str, Drawn] = {}
        """The artists that the legend shows for each curve, by its label."""
        self._draw(chart)

    def _draw(self, chart: Chart) -> None:
        em = self._letters / _POINTS
        head = self._draw_title(chart)
        foot = 0.6 * em
        for note in reversed(chart.notes):
            small = 0.9 * self._letters
            foot += self._write(note, 0, foot, size=small, color=look.MUTED) + 0.4 * em
        heights = [self._row] * len(chart.rows)
        mosaic = [[id(part) if part else "." for part in row] for row in chart.rows]
        if chart.table is not None:
            heights.append(_TABLE_ROW * em * len(chart.table.cells))
            mosaic.append([id(chart.table)] * chart.columns)
        axes = self.drawing.subplot_mosaic(mosaic, height_ratios=heights)
        shades = self._draw_shading(chart, list(axes.values()))
        for place in chart.places:
            if isinstance(place.part, Panel):
                self._draw_panel(axes[id(place.part)], place.part, place)
                if place.part.dots is not None:
                    _draw_dots(axes[id(place.part)], place.part.dots, shades)
        if chart.table is not None:
            _draw_table(axes[id(chart.table)], chart.table)
        below = foot
        if chart.legend:
            below += self._draw_legend(chart.named) + 1.5 * em
        height = head + sum(heights) + below
        self.drawing.set_figheight(height)
        for legend in self.drawing.legends:
            legend.set_bbox_to_anchor((0.0, foot / height))
        inside = (0.0, below / height, 1.0, 1 - (head + below) / height)
        self.drawing.set_layout_engine("constrained", rect=inside)

    def _draw_title(self, chart: Chart) -> float:
        """Writes title and subtitle; returns the height of both."""
        em = self._letters / _POINTS
        if not chart.title:
            return em
        large = self._letters
        if chart.paper_width is None:
            large = _TITLE
        bold = {"size": 1.2 * large, "weight": "bold"}
        below = 1.5 * em + self._write(chart.title, 1, -em, **bold)
        grey = {"size": 0.95 * large, "color": look.MUTED}
        return below + self._write(chart.subtitle, 1, -below, **grey) + em

    def _write(self, text: str, y: float, offset: float, **style: Any) -> float:
        """Writes a text `offset` above the lower (0) or upper (1) edge; returns its
        height."""
        from matplotlib.transforms import ScaledTranslation

        left = _LEFT * self._letters / _SMALL_LETTERS
        shift = ScaledTranslation(left, offset, self.drawing.dpi_scale_trans)
        written = self.drawing.text(
            0,
            y,
            printable(text),
            transform=self.drawing.transFigure + shift,
            verticalalignment="top" if y else "bottom",
            **style,
        )
        _fit(written, self._dots(self._width - 2 * left))
        return float(written.get_window_extent().height / self.drawing.dpi)

    def _dots(self, inches: float) -> float:
        return inches * float(self.drawing.dpi)

    def _draw_panel(self, axes: Drawn, panel: Panel, place: Place) -> None:
        """Draws a panel, its dots excepted."""
        width = self._dots(0.85 * self._cell * place.width)
        title = axes.set_title(printable(panel.title))
        if panel.hint:
            small = 0.85 * self._letters
            axes.set_title(title.get_text(), pad=6 + 1.6 * small)
            hint = axes.annotate(
                printable(panel.hint),
                (0, 1),
                (0, 6),
                size=small,
                color=look.MUTED,
                xycoords="axes fraction",
                textcoords="offset points",
            )
            _fit(hint, width)
        _fit(title, width)
        _fit(axes.set_xlabel(printable(panel.x.label)), width)
        up = axes.set_ylabel(printable(panel.y.label))
        _fit(up, self._dots(0.75 * self._row * place.height), along=1)
        if panel.is_empty:
            axes.set(xticks=[], yticks=[])
            middle = {"ha": "center", "va": "center", "transform": axes.transAxes}
            axes.text(0.5, 0.5, panel.note, color=look.MUTED, **middle)
            return
        _set_scale(axes.yaxis, panel.y)
        if panel.bars:
            self._draw_bars(axes, panel, width)
            return
        _set_scale(axes.xaxis, panel.x)
        if panel.x.categories and panel.x.numbers:
            texts = axes.get_xticklabels()
            widest = max(text.get_window_extent().width for text in texts)
            if widest * len(texts) > width:
                axes.tick_params("x", labelrotation=90)
        for curve in panel.curves:
            sample = self._draw_curve(axes, curve)
            self._samples.setdefault(curve.label, sample)

    def _draw_curve(self, axes: Drawn, curve: Curve) -> Drawn:
        """Returns what the legend shows of it."""
        stroke = look.STROKES[curve.style]
        thickness = stroke.width * self._letters / _LETTERS[1]
        if curve.x.size > _CROWDED:
            thickness *= _CROWDED_SHARE
        ink = look.colour(*curve.ink)
        (line,) = axes.plot(
            curve.x,
            curve.mean,
            color=ink,
            alpha=stroke.opacity,
            linewidth=thickness,
            linestyle=stroke.linestyle,
            zorder=2.5 - 0.1 * stroke.rank,  # results on top
        )
        lonely = alone(curve.mean)
        if lonely:
            x = curve.x[lonely]
            size = 3 * thickness
            axes.plot(
                x, curve.mean[lonely], "o", color=ink, alpha=stroke.opacity, ms=size
            )
        if curve.band is None:
            return line
        band = axes.fill_between(
            curve.x,
            *curve.band,
            color=ink,
            alpha=look.BAND_OPACITY,
            linewidth=0.5,
        )
        return band, line

    def _draw_bars(self, axes: Drawn, panel: Panel, width: float) -> None:
        """Bars from zero, `width` dots for all, with their groups' names below."""
        letters = self._letters
        places = bar_places(panel.bars)
        spare = max(GROUP_GAP, (_FEWEST - places[-1]) / 2)
        step = width / (places[-1] + 2 * spare)
        axes.grid(visible=False, axis="x")
        axes.set_xlim(-spare, places[-1] + spare)
        axes.set_xticks(places, [printable(bar.label) for bar in panel.bars])
        offset = {"textcoords": "offset points", "ha": "center"}
        thin = 0.1 * letters
        axes.bar(
            places,
            np.nan_to_num([bar.height for bar in panel.bars]),
            BAR_WIDTH,
            color=[look.colour(*bar.fill) for bar in panel.bars],
            edgecolor=[look.colour(*bar.ink) for bar in panel.bars],
            linewidth=thin,
        )
        low, high = np.transpose([bar.interval for bar in panel.bars])
        axes.vlines(places, low, high, look.TEXT, linewidth=thin)
        marks = [bar.mark for bar in panel.bars]
        half = 0.6 * BAR_WIDTH
        axes.hlines(
            marks, places - half, places + half, look.TEXT, linewidth=1.4 * thin
        )
        for place, bar in zip(places, panel.bars, strict=True):
            text = printable(bar.text)
            is_dark = bar.height > 0 and bar.fill.strength > _DARK
            written = axes.annotate(
                text,
                (place, 0.0),
                (0.0, 0.5 * letters),
                color="white" if is_dark else look.TEXT,
                va="bottom",
                **offset,
            )
            if written.get_window_extent().width > step * BAR_WIDTH:
                written.set_rotation(90)
        if panel.base is not None:
            axes.axhline(
                panel.base, color=look.MUTED, linewidth=1.5, linestyle="dashed"
            )
        groups = group_places(panel.bars)
        room = width / max(len(groups), 1)
        for group, place in groups.items():
            name = axes.annotate(
                printable(group),
                (place, 0.0),
                (0.0, -1.9 * letters),
                xycoords=axes.get_xaxis_transform(),
                weight="bold",
                va="top",
                **offset,
            )
            if name.get_window_extent().width > room:
                name.set_text(name.get_text().replace("_", "_\n"))
        if groups:
            axes.xaxis.labelpad = 2.8 * letters

    def _draw_shading(self, chart: Chart, axes: list[Drawn]) -> Drawn:
        """Draws the scale of colours; returns it."""
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        if chart.shading is None:
            return None
        low, high = limits([chart.shading.values], 0.0)
        shades = ScalarMappable(
            Normalize(low - look.MARGIN_BELOW * (high - low), high),
            colormaps["viridis_r"].with_extremes(bad=look.MUTED),
        )
        shades.set_array(np.ma.masked_invalid(chart.shading.values))
        scale = self.drawing.colorbar(
            shades,
            ax=axes,
            location="top",
            anchor=(1.0, 0.0),
            shrink=0.25,
            aspect=25,
            pad=0.01,
            label=printable(chart.shading.name),
        )
        scale.outline.set_visible(False)
        _set_scale(scale.ax.xaxis, Scale(ends=(low, high)))
        return shades

    def _draw_legend(self, named: list[Curve]) -> float:
        """Names curves below all else, in as many columns as have room; returns
        its height."""
        from matplotlib.legend_handler import HandlerTuple

        if not named:
            return 0.0
        room = self._dots(self._width - _LEFT)
        for columns in range(min(len(named), _MOST_COLUMNS), 0, -1):
            # matplotlib fills a legend column by column
            shown = [c for column in range(columns) for c in named[column::columns]]
            legend = self.drawing.legend(
                [self._samples[curve.label] for curve in shown],
                [printable(curve.label) for curve in shown],
                handler_map={tuple: HandlerTuple(ndivide=1, pad=0)},
                loc="lower left",
                ncols=columns,
            )
            box = legend.get_window_extent()
            if box.width <= room:
                break
            if columns > 1:
                legend.remove()
        for text in legend.get_texts():
            _fit(text, room - self._dots(_SAMPLE * self._letters / _POINTS))
        return float(legend.get_window_extent().height / self.drawing.dpi)


def _fit(text: Drawn, room: float, along: int = 0) -> None:
    """Makes letters smaller, then lines shorter, so that the text has `room`, in dots
    across (0) or upwards (1)."""
    length = text.get_window_extent().size[along]
    if length <= room:
        return
    share = max(room / length, _SMALLEST)
    text.set_fontsize(text.get_fontsize() * share)
    words = text.get_text()
    if length * share > room:
        letters = int(0.95 * len(words) * room / (length * share))
        text.set_text(textwrap.fill(words, max(letters, 1)))


def _set_scale(axis: Drawn, scale: Scale) -> None:
    from matplotlib.ticker import (
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
        NullLocator,
    )

    low, high = scale.ends
    if scale.log:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.axes.set(**{f"{axis.axis_name}lim": scale.ends})
    largest = max(abs(low), abs(high))
    if scale.categories:
        texts = list(map(printable, scale.categories))
        axis.set_ticks(range(len(texts)), texts)
    elif scale.log:
        subs: tuple[float, ...] = (1.0,)
        if high < _SHORT * low:
            subs = (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: look.tick_text(value, value))
        )
    else:
        steps = [1, 2, 2.5, 5, 10]
        axis.set_major_locator(MaxNLocator("auto", steps=steps, integer=scale.whole))
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: look.tick_text(value, largest))
        )
    if not scale.numbers:
        axis.set_major_formatter(NullFormatter())


def _draw_dots(axes: Drawn, dots: Dots, shades: Drawn) -> None:
    known = np.isfinite(dots.x + dots.y)
    edges = shades.to_rgba(shades.get_array())[known]
    inside = edges.copy()
    inside[:, 3] = np.where(dots.filled[known], _DOT_OPACITY, 0.0)
    size = np.clip(_DOT_AREA / max(len(dots.x), 1), *_DOT_SIZES)
    axes.scatter(
        dots.x[known],
        dots.y[known],
        s=size,
        facecolors=inside,
        edgecolors=edges,
        zorder=2.5,
        clip_on=False,
    )


def _draw_table(axes: Drawn, table: Table) -> None:
    """All rows, with a line below each; a line in its colour stands before each."""
    axes.axis("off")
    cells = table.cells
    table_drawn = axes.table(
        [[printable(cell) for cell in row] for row in cells],
        bbox=(0, 0, 1, 1),
        edges="B",
        cellLoc="right",
    )
    table_drawn.auto_set_column_width(range(len(cells[0])))
    for (row, column), cell in table_drawn.get_celld().items():
        cell.PAD = 0.0
        cell.set_edgecolor(look.GRID)
        style: Drawn = {"ha": "left" if column in table.left else "right"}
        if row == 0:
            style |= {"color": look.MUTED, "weight": "bold"}
        elif table.inks and column == 0:
            ink = table.inks[row - 1]
            style |= {"color": look.colour(*ink), "weight": "bold"}
        cell.set_text_props(**style)
