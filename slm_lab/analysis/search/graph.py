"""The graph of a search: dots as a picture; a page adds importances, parallel axes and a table."""

import html
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from slm_lab.analysis.figure.figure import Bar, Box, Dots, Figure, Panel, Parallel, Table, Words
from slm_lab.analysis.figure.figure import Scale as Axis
from slm_lab.analysis.figure.layout import LETTER, SIDE, short
from slm_lab.analysis.figure.write import write_figure
from slm_lab.analysis.search.figure import (
    AxisOf,
    ExperimentFigure,
    experiment_figure,
    number,
    point_texts,
)
from slm_lab.analysis.search.importance import Importance
from slm_lab.analysis.search.summary import SearchSummary

_FILLED, _HOLLOW = "● whole budget spent", "○ stopped early, or not ended"
_PARALLEL_HINT = (
    "drag along an axis to choose trials, click it to let go; drag a name to move its axis"
)
_TOP, _HEADING = 152, 64  # pixels: the picture's head, and the names above the panels
_LEFT, _RIGHT, _GAP = 136, 18, 16  # of the panels: numbers and names, the margin, between two
_PANELS_WIDTH, _NARROWEST, _WIDEST = 1410, 216, 746  # of all together, and of one
_HEIGHTS = {1: 420, 2: 320, 3: 250}  # of as many rows
_LOW = 186  # of more
_LETTERS, _PAGE_LETTERS = 15, 17
_SHORT = 260  # pixels of an axis that has room for a few numbers only
_PAGE_WIDTH, _PART_HEADING, _BETWEEN = 1690, 47, 83
_BAR, _BAR_FOOT, _NOTE_ROW, _PARALLEL, _TABLE_ROW = 44, 68, 29, 590, 37
_BARS_LEFT, _BARS_WIDTH, _NOTES_LEFT = 240, 560, 890
_NAME = 24  # letters beside a bar
_MANY = 4000  # dots, whose texts have to be short


def draw_experiment_graph(experiment: SearchSummary, folder: Path, prefix: str) -> list[Path]:
    """Writes `{prefix}_experiment_graph.png` and `.html` into `folder`; returns both paths.

    A picture of the Trials' metrics over every variable, and a page that adds parallel axes, the
    importance of each variable and the best Trials. Raises OSError.
    """
    found = experiment_figure(experiment)
    stem = f"{prefix}_experiment_graph"
    return write_figure(picture(found), folder, stem, page=page(found))


def picture(found: ExperimentFigure) -> Figure:
    """A row for each metric, a column for each variable."""
    rows, columns = max(len(found.metrics), 1), max(len(found.variables), 1)
    wide = min(max(_PANELS_WIDTH / columns, _NARROWEST), _WIDEST)
    foot = _foot(found, wide, _LETTERS)
    panels = Box(_LEFT, foot, columns * wide - _GAP, rows * _HEIGHTS.get(rows, _LOW) - _GAP)
    width, height = panels.right + _GAP + _RIGHT, panels.top + _HEADING + _TOP
    parts = _dots(found, panels, _LETTERS)
    seen = [text for full, text in ((True, _FILLED), (False, _HOLLOW)) if full in found.filled]
    hint = Words(SIDE, height - 130, "   ".join(seen), 17)
    inner = Box(0, 0, width, height)
    shading = found.shading if found.trials else None
    return Figure(
        found.title, found.subtitle, (hint, *parts), width, height, inner, _LETTERS, shading=shading
    )


def page(found: ExperimentFigure) -> Figure:
    """From the top: the importance of each variable, parallel axes of all, the best Trials, and the
    dots of every metric over every variable."""
    rows, columns = max(len(found.metrics), 1), max(len(found.variables), 1)
    wide = (_PAGE_WIDTH - _LEFT - _RIGHT) / columns
    foot = _foot(found, wide, _PAGE_LETTERS)
    heights = [
        max(_BAR * len(found.importances) + _BAR_FOOT, _NOTE_ROW * len(found.notes)),
        _PARALLEL,
        _TABLE_ROW * (len(found.best.rows) + 1),
        rows * _HEIGHTS.get(rows, 230) + _HEADING + foot,
    ]
    whole = sum(heights) + len(heights) * _PART_HEADING + (len(heights) - 1) * _BETWEEN
    boxes = []
    top = float(whole)
    for height in heights:
        top -= _PART_HEADING + height
        boxes.append(Box(SIDE, top, _PAGE_WIDTH - 2 * SIDE, height))
        top -= _BETWEEN
    bars, parallel, table, dots = boxes
    panels = Box(_LEFT, dots.bottom + foot, wide * columns, dots.height - foot - _HEADING)
    parts = (
        _heading(bars, "Importance of each hyperparameter"),
        *_importances(found, bars),
        _heading(parallel, "Parallel coordinates", _PARALLEL_HINT),
        _parallel(found, parallel),
        _heading(table, "The best trials"),
        Table(table, found.best) if found.best.rows else _nothing(table),
        _heading(dots, "Every metric over every variable", f"{_FILLED}   {_HOLLOW}"),
        *_dots(found, panels, _PAGE_LETTERS),
    )
    inner = Box(0, 0, _PAGE_WIDTH, whole)
    return Figure(
        found.title, found.subtitle, parts, _PAGE_WIDTH, whole, inner, _PAGE_LETTERS,
        shading=found.shading,
    )  # fmt: skip


def _heading(box: Box, text: str, hint: str = "") -> Words:
    return Words(box.left, box.top + 16, text, 23, heading=True, hint=hint)


def _nothing(box: Box, text: str = "no results yet") -> Words:
    return Words(box.left + 0.45 * box.width, box.bottom + box.height / 2, text, 25)


def _importances(found: ExperimentFigure, box: Box) -> Iterator[Panel | Words]:
    """A bar for each variable, with a mark at chance; beside them how they are computed."""
    for i, note in enumerate(found.notes):
        yield Words(_NOTES_LEFT, box.top - (i + 1) * _NOTE_ROW, note, 18)
    count = len(found.importances)
    if not count:
        return
    bars = tuple(_bar(i, each, found.names[each.path]) for i, each in enumerate(found.importances))
    names = tuple((bar.place, bar.label) for bar in bars)
    shares = tuple((i / 5, f"{20 * i}%") for i in range(6))
    panel = Box(_BARS_LEFT, box.top - _BAR * count, _BARS_WIDTH, _BAR * count)
    across, down = Axis("share explained", ticks=shares), Axis("", (count - 0.5, -0.5), ticks=names)
    yield Panel(panel, across, down, bars=bars, horizontal=True)


def _bar(place: int, importance: Importance, name: str) -> Bar:
    share, chance = importance.share, importance.chance
    label = short(name, _NAME)
    if share is None or chance is None:
        return Bar(place, label, None, 0.0, 0.0, math.nan, importance.reason)
    hover = (
        f"{html.escape(name)}: {share:.1%}<br>p = {number(importance.p_value)}, of "
        f"{importance.trials} trials<br>chance: 95 % below {chance:.1%}"
    )
    text = f"{100 * share:.0f} %"
    return Bar(place, label, share, 0.0, 0.0, chance, text, hollow=not importance.sure, hover=hover)


def _parallel(found: ExperimentFigure, box: Box) -> Parallel | Words:
    """A line for each Trial over axes of variables and results."""
    if not found.parallel_trials:
        return _nothing(box)
    axes = tuple((_axis(axis, axis.name, 6), axis.scale.at) for axis in found.parallel)
    inside = Box(box.left + 30, box.bottom, box.width - 70, box.height - 44)
    return Parallel(inside, axes, found.parallel_shading)


def _axis(axis: AxisOf, label: str, most: int) -> Axis:
    scale = axis.scale
    return Axis(label, scale.ends, most, scale.ticks, scale.log, scale.whole)


def _dots(found: ExperimentFigure, area: Box, letters: float) -> list[Panel | Words]:
    """A panel for each metric over each variable; zooming into one acts on its row and column."""
    rows, columns = len(found.metrics), len(found.variables)
    if not rows or not columns:
        return [_nothing(area, "no results yet" if columns else "nothing is varied")]
    wide, high = (area.width + _GAP) / columns, (area.height + _GAP) / rows
    texts = _hover(found, brief=rows * columns * len(found.trials) > _MANY)
    parts: list[Panel | Words] = []
    for j, variable in enumerate(found.variables):
        most = 5 if wide > _SHORT else 3
        for i, metric in enumerate(found.metrics):
            lowest = i == rows - 1
            box = Box(
                area.left + j * wide, area.top - (i + 1) * high + _GAP, wide - _GAP, high - _GAP
            )
            across = replace(
                _axis(variable, variable.name if lowest else "", most),
                numbers=lowest,
                upwards=lowest and _depth(variable, wide, letters) > 0,
                link=f"x{j}",
            )
            up = replace(_axis(metric, "" if j else metric.name, 5), numbers=not j, link=f"y{i}")
            dots = Dots(
                metric.name, variable.scale.beside, metric.scale.at, found.shading.colours,
                found.filled, texts,
            )  # fmt: skip
            head = ("", "") if i else (variable.name, variable.note)
            parts.append(Panel(box, across, up, *head, dots=dots))
    return parts


def _depth(axis: AxisOf, wide: float, letters: float) -> float:
    """Pixels of the longest category, if it has no room beside the others; otherwise 0."""
    if not axis.scale.categories:
        return 0.0
    longest = LETTER * letters * max(len(text) for _, text in axis.scale.ticks)
    return longest if longest + letters > wide / len(axis.scale.ticks) else 0.0


def _foot(found: ExperimentFigure, wide: float, letters: float) -> float:
    """Pixels below the panels: texts of ticks, and the names of the variables."""
    deepest = max([_depth(axis, wide, letters) for axis in found.variables], default=0.0)
    return max(deepest, letters) + 3.4 * letters


def _hover(found: ExperimentFigure, *, brief: bool) -> list[str]:
    """The Trial of each dot and its score; and its point, unless the text is `brief`."""
    texts = []
    for trial in found.trials:
        lines = [f"trial {trial.trial}, {trial.status}", f"score {number(trial.known_score)}"]
        if not brief:
            lines += point_texts(trial, found.names)
        texts.append("<br>".join(map(html.escape, lines)))
    return texts
