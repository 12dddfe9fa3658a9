"""Where the parts of a figure go: one panel over its legend, or panels in a grid."""

from collections.abc import Sequence

from slm_lab.analysis.figure import figure as fig

LETTER = 0.62
"""The width of a usual letter, as a share of its size."""
MAX_COLUMNS = 4
"""The most panels side by side that are still readable on a slide."""
SIDE = 34
"""Margins of figures with several parts."""

_WIDTH, _PLOT = 1280, fig.Box(141, 143, 1100, 455)  # a figure of one panel
_HEAD, _LABELS = 118, 104  # above the panel, and between it and the legend
_LEGEND, _SMALLER, _SMALLEST = 22, 17, 9  # letters of a legend
_SAMPLE, _GAP, _ROW = 2.1, 1.6, 1.5  # of a legend, in letters: sample of a line, gaps, rows
_MANY = 5  # the fewest entries that make two columns worth smaller letters

_GRID_WIDTH, _TOP, _FOOT = 1600, 128, 74
_CELL_HEIGHT = {1: 620, 2: 330}  # of a grid with so many rows
_LOW_CELL = 250  # of a grid with more
_NUMBERS, _BETWEEN, _HEADING = 72, 26, 50  # left of, right of and above a panel


def single(
    title: str, subtitle: str, x: str, y: str, curves: Sequence[fig.Curve], note: str = ""
) -> fig.Figure:
    """Curves in one pair of axes with labels `x` and `y`, over a legend that needs its rows."""
    labels = [curve.label for curve in fig.in_legend_order(curves)]
    letters, columns = _legend(labels)
    rows = -(-len(labels) // columns)
    box = _PLOT._replace(bottom=max(_PLOT.bottom, _LABELS + rows * _ROW * letters + 14))
    scales = fig.Scale(x, fig.x_limits(curves), 8), fig.Scale(y, fig.y_limits(curves))
    panel = fig.Panel(box, *scales, curves=tuple(curves), note=note)
    height = box.top + _HEAD
    return fig.Figure(title, subtitle, (panel,), _WIDTH, height, box, 23, (letters, columns))


def single_bars(title: str, subtitle: str, panel: fig.Panel) -> fig.Figure:
    """Bars alone; the panel's box is replaced."""
    box = _PLOT._replace(bottom=100)
    part = panel._replace(box=box, title="")
    return fig.Figure(title, subtitle, (part,), _WIDTH, 716, box, 22)


def overview(
    title: str,
    subtitle: str,
    x: str,
    panels: Sequence[tuple[str, Sequence[fig.Curve]]],
    note: str = "no values yet",
) -> fig.Figure:
    """Titled panels in a grid that share the x axis, labelled `x`, each with its own y axis."""
    rows, columns = grid_shape(len(panels))
    width, height = (_GRID_WIDTH - 2 * SIDE) / columns, _CELL_HEIGHT.get(rows, _LOW_CELL)
    whole = _TOP + rows * height + _FOOT
    ends = fig.x_limits([curve for _, curves in panels for curve in curves])
    few = columns <= 2
    parts = []
    for i, (name, curves) in enumerate(panels):
        row, column = divmod(i, columns)
        lowest = i + columns >= len(panels)
        box = fig.Box(
            SIDE + column * width + _NUMBERS,
            whole - _TOP - (row + 1) * height,
            width - _NUMBERS - _BETWEEN,
            height - _HEADING,
        )
        across = fig.Scale(x if lowest else "", ends, 8 if few else 5, numbers=lowest, link="x")
        up = fig.Scale(ends=fig.y_limits(curves), most=6 if few else 5)
        keys = tuple((curve.ink, f"━ {curve.label}") for curve in fig.in_legend_order(curves))
        parts.append(fig.Panel(box, across, up, name, "", keys, tuple(curves), note=note))
    inner = fig.Box(SIDE, _FOOT, _GRID_WIDTH - 2 * SIDE, whole - _TOP - _FOOT)
    size = 20 if few else 17
    return fig.Figure(title, subtitle, tuple(parts), _GRID_WIDTH, whole, inner, size, linked=True)


def grid_shape(panels: int) -> tuple[int, int]:
    """Rows and columns for `panels` pictures: about as many of both, at most 4 columns."""
    columns = next((c for c in range(1, MAX_COLUMNS) if panels <= c * c), MAX_COLUMNS)
    return -(-panels // columns), columns


def short(name: str, letters: int) -> str:
    """Its beginning and its end, if it has more `letters`."""
    before = 3 * letters // 5
    return name if len(name) <= letters else f"{name[:before]}…{name[before + 1 - letters :]}"


def _legend(labels: Sequence[str]) -> tuple[float, int]:
    """Letters and columns: as many columns as have room. Letters are smaller if one label is too
    long, and a little smaller if that gives many labels a second column."""
    wanted = 2 if len(labels) >= _MANY and _columns(labels, _SMALLER) >= 2 else 1
    sizes = range(_LEGEND, _SMALLEST - 1, -1)
    letters = next((size for size in sizes if _columns(labels, size) >= wanted), _SMALLEST)
    return float(letters), max(_columns(labels, letters), 1)


def _columns(labels: Sequence[str], letters: float) -> int:
    """The number of columns that have room, read row by row."""
    room = _WIDTH - 2 * SIDE
    widths = [(_SAMPLE + LETTER * len(label)) * letters for label in labels]
    for count in range(len(labels), 0, -1):
        columns = [max(widths[column::count]) for column in range(count)]
        if sum(columns) + _GAP * letters * (count - 1) <= room:
            return count
    return 0
