"""Draws a figure as PNG with matplotlib: no browser, no network, no global state."""

import io
from typing import TYPE_CHECKING

import numpy as np

from slm_lab.analysis import figure as look
from slm_lab.analysis.figure import Curve, Figure, colour_of, in_legend_order, runs, tick_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

_SIZE = (10.0, 5.6)  # inches: fonts are read as on a slide of this width
_DPI = 128
_AXES = (0.11, 0.2, 0.86, 0.635)  # left, bottom, width, height, as shares of the canvas
_LINE_WIDTH = {"solid": 1.9, "dashed": 1.5, "faint": 0.8}


def render_png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file, 1280 pixels wide."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=_SIZE, dpi=_DPI, facecolor="white")
    FigureCanvasAgg(canvas)
    axes = canvas.add_axes(_AXES)
    lines = {id(curve): _draw(axes, curve) for curve in figure.curves}
    _dress_axes(axes, figure)
    canvas.text(0.02, 0.925, figure.title, fontsize=17, fontweight="bold", color=look.INK)
    canvas.text(0.02, 0.87, figure.subtitle, fontsize=13, color=look.MUTED)
    _add_legend(canvas, [lines[id(curve)] for curve in in_legend_order(figure.curves)])
    buffer = io.BytesIO()
    canvas.savefig(buffer, format="png")
    return buffer.getvalue()


def _draw(axes: "Axes", curve: Curve) -> "Line2D":
    colour = colour_of(curve)
    known = np.isfinite(curve.mean)
    lonely = [stretch for stretch in runs(known) if stretch.stop - stretch.start == 1]
    faint = curve.style == "faint"
    opacity, layer = (look.FAINT_OPACITY, 2) if faint else (1.0, 3)
    (line,) = axes.plot(
        curve.x,
        curve.mean,
        color=colour,
        label=curve.label or "_",
        linewidth=_LINE_WIDTH[curve.style],
        linestyle=(0, (3, 1.5)) if curve.style == "dashed" else "-",
        alpha=opacity,
        solid_joinstyle="round",
        zorder=layer,
    )
    for stretch in lonely:  # a line of one point has no length
        point = curve.x[stretch], curve.mean[stretch]
        axes.plot(*point, "o", color=colour, alpha=opacity, markersize=6, zorder=layer)
    if curve.std is not None:
        axes.fill_between(
            curve.x,
            curve.mean - curve.std,
            curve.mean + curve.std,
            color=colour,
            alpha=look.BAND_OPACITY,
            linewidth=0,
            zorder=1,
        )
    return line


def _dress_axes(axes: "Axes", figure: Figure) -> None:
    axes.set_xlabel(figure.x_label, fontsize=14, color=look.INK, labelpad=6)
    # At a fixed place, so that long numbers beside the axis never push it out of the picture.
    axes.text(
        -_AXES[0] / _AXES[2] * 0.76,
        0.5,
        figure.y_label,
        transform=axes.transAxes,
        rotation="vertical",
        ha="center",
        va="center",
        fontsize=14,
        color=look.INK,
    )
    axes.grid(color=look.GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.01, y=0.06)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(look.MUTED)
    axes.tick_params(labelsize=13, colors=look.INK, length=0, pad=6)
    _label_ticks(axes.xaxis, most_ticks=8, ends=axes.get_xlim())
    _label_ticks(axes.yaxis, most_ticks=6, ends=axes.get_ylim())
    if figure.note:
        axes.text(
            0.5,
            0.5,
            figure.note,
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=15,
            color=look.MUTED,
        )
        axes.set(xticks=[], yticks=[])


def _label_ticks(axis: "XAxis | YAxis", most_ticks: int, ends: tuple[float, float]) -> None:
    from matplotlib.ticker import MaxNLocator

    largest = max(abs(end) for end in ends)
    axis.set_major_locator(MaxNLocator(most_ticks, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(lambda value, _: tick_text(value, largest))


def _add_legend(canvas: "Canvas", lines: "list[Line2D]") -> None:
    if not lines:
        return
    canvas.legend(
        handles=lines,
        loc="lower left",
        bbox_to_anchor=(_AXES[0] - 0.01, 0.0),
        ncols=len(lines),
        frameon=False,
        fontsize=13,
        labelcolor=look.INK,
        handlelength=1.8,
        columnspacing=1.8,
    )
