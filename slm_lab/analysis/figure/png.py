"""Draws figures as pictures by matplotlib's object-oriented interface, never pyplot.

A figure has 72 dots per inch, so that a point is a pixel. What lies below the lowest
box (texts of ticks, labels, the legend) is measured: a picture is as high as it needs.
Lengths beside the parts are pixels of a figure with letters of 23, and scale with its
letters if it has a legend."""

import io
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np

from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.figure import look
from slm_lab.analysis.figure.layout import SIDE
from slm_lab.core.types import BoolArray, FloatArray

Drawn: TypeAlias = Any
"""An object of matplotlib, whose own types are narrower than what it accepts."""

_STYLE = Path(__file__).with_name("png.mplstyle")
"""Axes with a line below, a grid, and numbers outside; texts without a frame."""
_DPI, _PRINT_DPI = 72, 300
_LABEL_AT = 4.1  # letters from the y axis to its label, at least
_USUAL = 23  # letters of a figure with a legend
_COLOURS = 256  # of a PNG with a palette, a third of the size of one without
_ALMOST_WHITE = 252
_SMALLEST = 9  # letters that can be read on a screen; on paper 0.7 of the others
_FEW = 12  # letters, below which a text is not made shorter
_FOOT = 24  # pixels below everything
_LINE_WIDTH = {"solid": 0.15, "dashed": 0.115, "faint": 0.06}  # in letters
_DASH, _LONG_DASH = (0.0, (3.0, 1.5)), (0.0, (7.0, 4.0))  # in widths of the line
# of lines' widths, if one has more points than the axes have pixels across
_CROWDED = 0.6
_PALE = 0.25  # the share of white from which on dark letters are easier to read
_DOTS = ((40, 12.0), (120, 10.0), (250, 8.0))  # the diameters of up to so many dots
_TINY, _DOT_OPACITY = 6.0, 0.9
# its letters; smaller ones give many entries two columns
_LEGEND, _SMALLER, _MANY = 22, 17, 5
# of a legend: the sample of a line, and the gap between columns, in letters
_SAMPLE = 3.8
_KEY = 300  # pixels of the scale of colours
_TABLE = 18  # letters of a table
_INK: dict[str, Any] = {"color": look.INK}
_BOLD: dict[str, Any] = {**_INK, "weight": "bold"}


def render_png(figure: fig.Figure) -> bytes:
    """The figure as the bytes of a PNG file for screens."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    packed, about = io.BytesIO(), PngInfo()
    about.add_itxt("Description", figure.about)
    raw, width = _drawn(figure, format="rgba"), round(figure.width)
    colours = Image.frombuffer("RGBA", (width, len(raw) // (4 * width)), raw).convert(
        "RGB"
    )
    few = colours.quantize(
        _COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
    )
    # A palette colour is the mean of the colours that it replaces: white would become
    # 254.
    palette = few.getpalette() or []
    few.putpalette([255 if part >= _ALMOST_WHITE else part for part in palette])
    few.save(
        packed, format="png", compress_level=4, pnginfo=about if figure.about else None
    )
    return packed.getvalue()


def render_print(figure: fig.Figure, form: Literal["pdf", "svg", "png"]) -> bytes:
    """The figure for paper, its pixels as points: PDF with TrueType fonts, SVG with
    texts as paths, or PNG with 300 dots per inch. The same figure gives the same
    bytes."""
    words = {"pdf": "Subject", "svg": "Description", "png": "Description"}
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
    about = {**dates[form], words[form]: figure.about}
    return _drawn(figure, format=form, dpi=_PRINT_DPI, metadata=about)


def _drawn(figure: fig.Figure, **options: Any) -> bytes:
    from matplotlib import rc_context
    from matplotlib.transforms import Bbox

    content = io.BytesIO()
    with rc_context(_style(figure.letters), _STYLE):
        picture = _Picture(figure)
        width, height = picture.drawing.get_size_inches()
        kept = Bbox.from_extents(
            0, (picture.lowest - picture.unit * _FOOT) / _DPI, width, height
        )
        picture.drawing.savefig(content, bbox_inches=kept, **options)
    return content.getvalue()


def _style(letters: float) -> Any:
    ticks = {"labelsize": letters, "labelcolor": look.INK, "major.pad": 0.4 * letters}
    return {
        **{f"{axis}tick.{key}": value for axis in "xy" for key, value in ticks.items()},
        "figure.dpi": _DPI,
        "text.color": look.MUTED,
        "axes.edgecolor": look.MUTED,
        "axes.linewidth": min(1.0, 0.07 * letters),
        "axes.labelcolor": look.INK,
        "axes.labelsize": 1.05 * letters,
        "axes.labelpad": 0.4 * letters,
        "grid.color": look.GRID,
        "grid.linewidth": min(1.2, 0.08 * letters),
        "legend.labelcolor": look.INK,
    }


@final
class _Picture:
    """A figure as a drawing of matplotlib; places are counted from its upper left
    corner."""

    def __init__(self, figure: fig.Figure) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as MatplotlibFigure

        self._letters = figure.letters
        self.unit = figure.letters / _USUAL if figure.legend else 1.0
        self._smallest = min(_SMALLEST, 0.7 * figure.letters)
        self.width, self._height = figure.width, round(figure.inner.bottom)
        size = self.width / _DPI, self._height / _DPI
        self.drawing: Drawn = MatplotlibFigure(size, facecolor="white")
        canvas: Drawn = FigureCanvasAgg(self.drawing)
        self._renderer = canvas.get_renderer()
        left = self.unit * (26 if figure.legend else SIDE)
        letters = self.unit * (26.0 if figure.width < 1500 else 32.0)
        room = self.width - 2 * left
        if figure.title:
            self._write(left, self.unit * 54, figure.title, letters, room, **_BOLD)
            self._write(left, self.unit * 93, figure.subtitle, 0.75 * letters, room)
        shades = None if figure.shading is None else self._add_shading(figure.shading)
        self._samples: list[tuple[fig.Curve, Any]] = []
        """What the legend shows of each curve."""
        for part in figure.parts:
            match part:
                case fig.Panel():
                    self._add_panel(part, shades)
                case fig.Table():
                    self._add_table(part)
                case fig.TextLine(x, y, text, letters):
                    self._write(x, y, text, letters, self.width - x - SIDE)
        if figure.legend:
            self._add_legend()

    @property
    def lowest(self) -> float:
        """The lower end of everything, in pixels from the lower edge of the lowest box
        upwards."""
        labelled = [axes.xaxis for axes in self.drawing.axes if axes.get_xlabel()]
        parts: list[Drawn] = [*self.drawing.texts, *self.drawing.legends, *labelled]
        return float(
            min(0.0, *[part.get_tightbbox(self._renderer).y0 for part in parts])
        )

    def _axes(self, box: fig.Box) -> Drawn:
        w, h = self.width, self._height
        place = box.left / w, 1 - box.bottom / h, box.width / w, box.height / h
        return self.drawing.add_axes(place)

    def _write(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        room: float = np.inf,
        **style: Any,
    ) -> float:
        at = x / self.width, 1 - y / self._height
        return self._fit(self.drawing.text(*at, text, size=size, **style), room)

    def _fit(self, line: Drawn, room: float) -> float:
        """Makes its letters smaller to fit `room`, then its text shorter. Returns its
        length."""
        along = 1 if line.get_rotation() else 0
        while (length := line.get_window_extent(self._renderer).size[along]) > room:
            if line.get_fontsize() <= self._smallest:
                text = line.get_text()
                letters = int(len(text) * room / length)
                if letters < _FEW:
                    break
                line.set_text(fig.short(text, letters))
                return float(room)
            line.set_fontsize(line.get_fontsize() - self.unit)
        return float(length)

    def _add_panel(self, panel: fig.Panel, shades: Drawn) -> None:
        box, letters = panel.box, self._letters
        axes = self._axes(box)
        self._add_head(panel)
        if panel.x.label and not panel.bars:
            self._fit(axes.set_xlabel(panel.x.label), box.width)
        if panel.is_empty:
            axes.set(xticks=[], yticks=[])
            self._add_y_label(axes, panel)
            middle = {"transform": axes.transAxes, "ha": "center", "va": "center"}
            axes.text(0.5, 0.5, panel.note, size=1.15 * letters, **middle)
            return
        _set_axis(axes.yaxis, panel.y)
        _set_axis(axes.xaxis, panel.x)
        self._add_y_label(axes, panel)
        is_crowded = any(len(curve.x) > axes.bbox.width for curve in panel.curves)
        thickness = _CROWDED if is_crowded else 1.0
        for curve in sorted(panel.curves, key=lambda curve: -curve.rank):
            self._samples.append((curve, _draw_curve(axes, curve, letters, thickness)))
        if panel.bars:
            self._add_bars(axes, panel)
        if panel.dots is not None and shades is not None:
            _draw_dots(axes, panel.dots, shades)
            if panel.x.numbers and panel.x.has_names:
                names = [
                    each.get_window_extent(self._renderer)
                    for each in axes.get_xticklabels()
                ]
                widest = max(name.width for name in names)
                if widest + letters > box.width / len(names):  # they have room upwards
                    axes.tick_params("x", labelrotation=90)

    def _add_y_label(self, axes: Drawn, panel: fig.Panel) -> None:
        """The label beside the numbers, which never push it out of the picture."""
        box, letters = panel.box, self._letters
        if panel.y.label:
            above = 30 * self.unit if box.height > 15 * letters else 0.0
            self._fit(axes.set_ylabel(panel.y.label), box.height + above)
            numbers = [
                each.get_window_extent(self._renderer)
                for each in axes.get_yticklabels()
            ]
            widest = max((each.width for each in numbers), default=0.0) / letters
            beside = min(max(_LABEL_AT, widest + 1.4), _LABEL_AT + 0.7)
            axes.yaxis.set_label_coords(-beside * letters / box.width, 0.5)

    def _add_head(self, panel: fig.Panel) -> None:
        """Title and keys above a panel, side by side; the hint, or the keys of bars,
        below them."""
        box, y, small = (
            panel.box,
            panel.box.top - 0.65 * self._letters,
            0.9 * self._letters,
        )
        if panel.hint:
            self._write(box.left, y, panel.hint, small, box.width)
        above = y - 1.5 * self._letters * bool(
            panel.hint or (panel.bars and panel.keys)
        )
        x = box.left + self._write(
            box.left, above, panel.title, small / 0.8, box.width, **_BOLD
        )
        x, y = (box.left, y) if panel.bars else (x + small, above)
        for colour, text in panel.keys:
            x += (
                self._write(x, y, text, small, max(box.right - x, 1), color=colour)
                + small
            )

    def _add_bars(self, axes: Drawn, panel: fig.Panel) -> None:
        bars, box, letters = panel.bars, panel.box, self._letters
        axes.grid(visible=False, axis="x")
        numbers = [(bar.place, bar.low, bar.high, bar.mark) for bar in bars]
        places, low, high, marks = np.array(numbers).reshape(-1, 4).T
        heights = [np.nan if bar.height is None else bar.height for bar in bars]
        colours = {
            "color": [bar.fill for bar in bars],
            "edgecolor": [bar.ink for bar in bars],
        }
        axes.bar(places, heights, fig.BAR_WIDTH, linewidth=0.1 * letters, **colours)
        axes.vlines(places, low, high, look.INK, linewidth=0.1 * letters)
        half = 0.6 * fig.BAR_WIDTH
        axes.hlines(
            marks, places - half, places + half, look.INK, linewidth=0.14 * letters
        )
        if panel.base is not None:
            axes.axhline(
                panel.base, color=look.MUTED, linewidth=0.09 * letters, ls=_LONG_DASH
            )
        step = box.width / (panel.x.ends[1] - panel.x.ends[0])
        for bar in bars:
            pale = bar.hollow or bar.tint > _PALE
            ink = look.MUTED if bar.height is None else look.INK if pale else "#FFFFFF"
            text = axes.annotate(
                bar.text,
                (bar.place, panel.y.ends[0]),
                (0, 0.5 * letters),
                size=letters,
                color=ink,
                textcoords="offset points",
                ha="center",
                va="bottom",
            )
            if text.get_window_extent(self._renderer).width > step * fig.BAR_WIDTH:
                text.set_rotation(90)
        y = box.bottom + 1.35 * letters
        self._write(
            box.left - 0.5 * letters, y, panel.x.label, 0.8 * letters, ha="right"
        )
        for group, at in panel.groups.items():
            x = box.left + (at[0] / 2 + at[-1] / 2 - panel.x.ends[0]) * step
            below, room = y + 1.4 * letters, step * (len(at) + 0.5)
            self._write(x, below, group, 1.05 * letters, room, ha="center", **_BOLD)

    def _add_table(self, part: fig.Table) -> None:
        """All rows, with a line below each; a swatch stands before each but the
        header."""
        cells, letters = part.cells, part.letters
        axes = self._axes(part.box)
        axes.axis("off")
        widths = [count / sum(letters) for count in letters]
        table = axes.table(
            cells, colWidths=widths, bbox=(0, 0, 1, 1), edges="B", cellLoc="right"
        )
        table.auto_set_font_size(False)
        size = min(_TABLE, part.box.width / (fig.LETTER * sum(letters)))
        for (row, column), cell in table.get_celld().items():
            cell.PAD = 0.0
            cell.set(edgecolor=look.GRID, linewidth=1.2)
            swatch = (
                part.swatches[row - 1] if row and part.swatches and not column else None
            )
            style = {
                "color": swatch or look.INK,
                "weight": "bold" if swatch else "normal",
            }
            style = style if row else {"color": look.MUTED, "weight": "bold"}
            cell.set_text_props(
                size=size, ha="left" if column in part.left else "right", **style
            )

    def _add_shading(self, shading: look.Shading) -> Drawn:
        """The colours from the least to the most, at the right; returns what maps to
        them."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LinearSegmentedColormap, Normalize

        colours = LinearSegmentedColormap.from_list("", look.SHADES).with_extremes(
            bad=look.MISSING_COLOUR
        )
        shades = ScalarMappable(Normalize(*shading.ends), colours)
        shades.set_array(np.ma.masked_invalid(shading.values))
        low, high = (look.tick_text(float(f"{end:.4g}"), 1.0) for end in shading.ends)
        end, length = float(self.width - SIDE), min(_KEY, self.width / 5)
        end -= self._write(end, 130, high, 17, ha="right", **_INK) + 10
        bar = self._axes(fig.Box(end - length, 116, length, 16))
        scale = self.drawing.colorbar(shades, bar, orientation="horizontal", ticks=[])
        scale.outline.set_visible(False)
        self._write(
            end - length - 10, 130, f"{shading.name}  {low}", 17, ha="right", **_INK
        )
        return shades

    def _add_legend(self) -> None:
        """What the labelled curves are, read row by row, below everything else. Letters
        are smaller if a label is too long, and a little smaller if that gives many
        labels two columns."""
        from matplotlib.legend_handler import HandlerTuple

        samples = sorted(self._samples, key=lambda sample: sample[0].rank)
        shown = [(curve.label, sample) for curve, sample in samples if curve.label]
        if not shown:
            return
        unit, longest = self.unit, max((label for label, _ in shown), key=len)
        room = self.width - 2 * unit * SIDE
        probe = self.drawing.text(0, 0, longest)
        for wanted in (2, 1) if len(shown) >= _MANY else (1,):
            probe.set(fontsize=unit * _LEGEND, text=longest)
            width = self._fit(probe, room / wanted - _SAMPLE * unit * _LEGEND)
            if (size := probe.get_fontsize()) >= unit * _SMALLER:
                break
        probe.remove()
        columns = max(int(room / (width + _SAMPLE * size)), 1)
        # Matplotlib fills a legend column by column.
        shown = [each for column in range(columns) for each in shown[column::columns]]
        self.drawing.legend(
            [sample for _, sample in shown],
            [fig.short(label, len(probe.get_text())) for label, _ in shown],
            handler_map={tuple: HandlerTuple(ndivide=1, pad=0)},
            loc="upper left",
            bbox_to_anchor=(26 * unit / self.width, -104 * unit / self._height),
            ncols=columns,
            fontsize=size,
        )


def _set_axis(axis: Drawn, scale: fig.Scale) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = scale.ends
    axis.axes.set(**{f"{axis.axis_name}lim": scale.ends})
    ticks = dict(scale.ticks)
    if not ticks:
        least = 2 if scale.whole else 3
        steps = [1, 2, 2.5, 5, 10]
        round_numbers = MaxNLocator(
            scale.most, steps=steps, integer=scale.whole, min_n_ticks=least
        )
        at = [
            float(each)
            for each in round_numbers.tick_values(low, high)
            if low <= each <= high
        ]
        ticks = {each: look.tick_text(each, max(abs(low), abs(high))) for each in at}
    axis.set_ticks(
        list(ticks), list(ticks.values()) if scale.numbers else [""] * len(ticks)
    )


def _draw_curve(
    axes: Drawn, curve: fig.Curve, letters: float, thickness: float
) -> Drawn:
    style: dict[str, Any] = {"color": curve.ink, "alpha": curve.opacity, "zorder": 2.5}
    width = _LINE_WIDTH[curve.style] * thickness
    dash = _DASH if curve.style == "dashed" else "solid"
    (line,) = axes.plot(
        curve.x, curve.mean, linestyle=dash, linewidth=width * letters, **style
    )
    if (alone := _alone(curve.mean)).any():
        style |= {"markersize": 0.45 * letters, "markeredgewidth": 0}
        axes.plot(curve.x[alone], curve.mean[alone], "o", **style)
    if curve.band is None:
        return line
    low, high = curve.band
    if (alone := _alone(low)).any():
        axes.vlines(
            curve.x[alone], low[alone], high[alone], curve.ink, alpha=0.5, linewidth=2.0
        )
    around = {"facecolor": curve.ink, "alpha": look.BAND_OPACITY, "linewidth": 0}
    return axes.fill_between(curve.x, low, high, **around), line


def _alone(values: FloatArray) -> BoolArray:
    """Points without a neighbour: a line or band of one point has no length."""
    alone = np.zeros(len(values), np.bool_)
    for stretch in fig.runs(np.isfinite(values)):
        alone[stretch.start] = stretch.stop - stretch.start == 1
    return alone


def _draw_dots(axes: Drawn, dots: fig.Dots, shades: Drawn) -> None:
    known = np.isfinite(dots.x + dots.y)
    filled, colours = dots.filled[known], shades.to_rgba(shades.get_array())[known]
    inside = colours.copy()
    inside[:, 3] = np.where(filled, _DOT_OPACITY, 0.0)
    diameter = next((size for most, size in _DOTS if len(dots.x) <= most), _TINY)
    axes.scatter(
        dots.x[known],
        dots.y[known],
        s=(diameter * np.where(filled, 1.0, 0.82)) ** 2,
        facecolors=inside,
        edgecolors=colours,
        linewidths=np.where(filled, 0.0, 0.18 * diameter),
        zorder=2.5,
        clip_on=False,
    )
