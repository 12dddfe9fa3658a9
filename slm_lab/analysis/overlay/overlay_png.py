"""Draws an overlay as PNG: the panel, and under it a legend in as many rows as it needs."""

from collections.abc import Sequence

import numpy as np

from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.figure import Curve, colour_of
from slm_lab.analysis.figure.png import Box, Picture, draw_figure
from slm_lab.analysis.overlay.overlay import Overlay

_WIDTH = 1280
_LEFT, _RIGHT, _SIDE = 141, 39, 26
_TOP, _HEIGHT, _FOOT = 118, 455, 104  # title, panel, numbers and label of the x axis
_ROW, _END = 1.5, 14  # of the legend, in letters, and what is below it
_LETTERS, _SMALLER, _SMALLEST = 22.0, 17.0, 13.0  # of the legend
_GAP = 1.6  # between two columns, in letters
_MANY = 5  # curves, from which on a legend is better in two columns


def render_overlay_png(overlay: Overlay) -> bytes:
    """The overlay as the bytes of a PNG file, 1280 pixels wide and as high as its legend needs."""
    figure = overlay.figure
    labelled = [curve for curve in figure.curves if curve.label]
    letters, columns = _legend(labelled)
    rows = -(-len(labelled) // max(columns, 1))
    below = _FOOT + rows * _ROW * letters + _END
    picture = Picture(_WIDTH, _TOP + _HEIGHT + below)
    box = Box(_LEFT, below, _WIDTH - _LEFT - _RIGHT, _HEIGHT)
    axes = draw_figure(picture, box, figure, overlay.in_view)
    for curve, band in zip(figure.curves, overlay.bands, strict=True):
        if band is not None:  # under everything else, so that no band covers a line
            axes.fill_between(curve.x, band.low, band.high, color=colour_of(curve), linewidth=0,
                              alpha=look.BAND_OPACITY, zorder=0.5)  # fmt: skip
    # Matplotlib fills a legend column by column; it is read row by row.
    order = [i for column in range(columns) for i in range(column, len(labelled), columns)]
    picture.legend([labelled[i] for i in order], _SIDE, below - _FOOT, letters, columns)
    return picture.png()


def _legend(labelled: Sequence[Curve]) -> tuple[float, int]:
    """Letters and columns: as many columns as the longest label leaves room for. The letters are
    smaller where it is too long for one, and a little smaller where many curves get a second
    column by that."""
    if not labelled:
        return _LETTERS, 0
    picture, room = Picture(8, 8), _WIDTH - 2.0 * _SIDE

    def columns(letters: float) -> int:
        widest = max(picture.legend_width([curve], letters) for curve in labelled)
        return int((room + _GAP * letters) / (widest + _GAP * letters))

    letters, wanted = _LETTERS, 2 if len(labelled) >= _MANY else 1
    if columns(_SMALLER) < wanted:
        wanted = 1
    sizes = np.arange(_LETTERS, _SMALLEST - 1, -1.0)
    letters = next((float(size) for size in sizes if columns(size) >= wanted), _SMALLEST)
    return letters, min(max(columns(letters), 1), len(labelled))
