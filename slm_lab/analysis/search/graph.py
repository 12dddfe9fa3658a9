"""The graph of a search: dots as a picture; a page adds importances, parallel axes and
a table."""

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.figure.figure import Scale, limits, log_ticks
from slm_lab.analysis.figure.layout import SIDE
from slm_lab.analysis.figure.look import Shading, tick_text
from slm_lab.analysis.figure.write import write_figure
from slm_lab.analysis.search import search_summary as summary
from slm_lab.analysis.search.importance import Importance, comparable, importances
from slm_lab.analysis.search.trial_state import TABLE_TRIALS, TrialState, ranked
from slm_lab.core.text import TextTable, count_text
from slm_lab.core.types import FloatArray
from slm_lab.spec.search import LISTS, Dimension

MOST_CATEGORIES = 12
"""Numbers picked from a longer list get an axis of numbers."""
MISSING = object()
"""In place of a value that a Trial does not have."""

_MARGIN = 0.06  # of an axis, on both sides
_SPREAD, _STEP = 0.28, 0.03  # at most, and for each of the trials in one category
_GOLDEN = 0.5 * (math.sqrt(5) - 1)  # whose multiples, modulo 1, stay far apart


class Places(NamedTuple):
    """The places `at` (n,) of n Trials on an axis, NaN without one, and a note about
    the axis. Categories count from 0. A `log` scale counts in powers of ten."""

    scale: Scale
    at: FloatArray
    note: str = ""

    @property
    def beside(self) -> FloatArray:
        """(n,): `at`, with the Trials of one category side by side, in no order."""
        moved = self.at.copy()
        for place, _ in self.scale.ticks if self.scale.has_names else ():
            there = np.flatnonzero(self.at == place)
            room = min(_SPREAD, _STEP * there.size)
            moved[there] += room * (
                2 * (_GOLDEN * np.arange(1, there.size + 1) % 1) - 1
            )
        return moved


def number_places(
    values: Sequence[float | None], label: str = "", whole: bool = False
) -> Places:
    """Plain numbers; None stands nowhere."""
    at = np.array(
        [math.nan if value is None else value for value in values], np.float64
    )
    return Places(Scale(label, limits([at], _MARGIN), whole=whole), at)


def variable_places(
    variable: Dimension, values: Sequence[Any], label: str = ""
) -> Places:
    """The axis of a variable over its `values` in n Trials, MISSING where one has none.
    Categories if a value is no number, numbers were picked from a short list, or are
    whole and close."""
    known = [value for value in values if value is not MISSING]
    listed = variable.sampler in LISTS
    choices = [*variable.args, *known] if listed else known
    kinds = {summary.identity(value): value for value in choices}
    if not summary.numeric(known) or (listed and len(kinds) <= MOST_CATEGORIES):
        return _categories(values, list(kinds.values()), label)
    numbers = [None if value is MISSING else float(value) for value in values]
    if "log" in variable.sampler and all(value > 0 for value in known):
        plain = number_places([value and math.log10(value) for value in numbers], label)
        ticks = log_ticks(*plain.scale.ends)
        return plain._replace(scale=plain.scale._replace(ticks=ticks, log=True))
    whole = all(isinstance(value, int) for value in known)
    if whole and known and max(known) - min(known) < MOST_CATEGORIES:
        return _categories(values, range(min(known), max(known) + 1), label)
    return number_places(numbers, label, whole)


def _categories(values: Sequence[Any], kinds: Sequence[Any], label: str) -> Places:
    if summary.numeric(kinds):
        kinds = sorted(kinds)
    place = {summary.identity(kind): float(i) for i, kind in enumerate(kinds)}
    at = [
        math.nan if value is MISSING else place[summary.identity(value)]
        for value in values
    ]
    ticks = tuple((float(i), summary.value_text(kind)) for i, kind in enumerate(kinds))
    ends = -0.5, max(len(kinds), 1) - 0.5
    return Places(Scale(label, ends, ticks=ticks), np.array(at, np.float64))


SCORE = "score"

_NOT_DRAWN = "total_reward_ma"
"""Only in the table: its dots would repeat those of `final_return`."""
_STRENGTH = "strength"
_FILLED, _HOLLOW = "● whole budget spent", "○ stopped early, or not ended"
_PARALLEL_HINT = (
    "drag along an axis to choose trials, click it to let go; drag a name to move its "
    "axis"
)
_ORDER = "whole budgets first, then those stopped early, by frames"
_TOP, _HEADING = 152, 64  # pixels: the picture's head, and the names above the panels
# of the panels: numbers and names, the margin, between two
_LEFT, _RIGHT, _GAP = 102, 18, 30
_PANELS_WIDTH, _NARROWEST, _WIDEST = 1410, 216, 746  # of all together, and of one
_HEIGHTS = {1: 420, 2: 320, 3: 250}  # of as many rows
_LOW, _PAGE_LOW = 186, 230  # of more
_LETTERS, _PAGE_LETTERS = 15, 17
_SHORT = 260  # pixels of an axis that has room for a few numbers only
_PAGE_WIDTH, _PAGE_TOP, _PART_HEADING, _BETWEEN = 1690, 132, 47, 83
_BAR, _BAR_FOOT, _NOTE_ROW, _PARALLEL, _TABLE_ROW = 44, 68, 29, 590, 37
_BARS_LEFT, _BARS_WIDTH, _NOTES_LEFT = 240, 526, 856  # from the left edge of their part
_NAME = 28  # letters beside a bar
_MANY = 4000  # dots, whose texts have to be short


class ExperimentFigure(NamedTuple):
    """Dots of n Trials over every variable for every metric; and what the page adds.
    `trials` are those with any value, in the order of drawing: the best last.
    `parallel` are axes over the Trials that have a place on each, empty without any,
    and `parallel_shading` their colours. `names` are those of the variables, by
    path."""

    title: str
    subtitle: str
    trials: tuple[TrialState, ...]
    variables: tuple[Places, ...]
    metrics: tuple[Places, ...]
    shading: Shading
    parallel: tuple[Places, ...]
    parallel_shading: Shading
    importances: tuple[Importance, ...]
    names: Mapping[str, str]
    best: TextTable
    notes: tuple[str, ...]


def draw_experiment_graph(
    experiment: summary.SearchSummary, folder: Path, prefix: str
) -> list[Path]:
    """Writes `{prefix}_experiment_graph.png` and, with more parts, `.html` into
    `folder`; returns both paths. Raises OSError."""
    found = experiment_figure(experiment)
    stem = f"{prefix}_experiment_graph"
    return write_figure(picture(found), folder, stem, folder.parent, page(found))


def experiment_figure(experiment: summary.SearchSummary) -> ExperimentFigure:
    """The whole search in one picture."""
    best_first = ranked(experiment.trials)
    trials = [
        each
        for each in reversed(best_first)
        if any(
            number is not None
            for number in (each.known_score, *map(each.metric, each.metrics))
        )
    ]
    names = summary.short_names([variable.path for variable in experiment.variables])
    found = importances(experiment)
    notes_of = {each.path: importance_text(each) for each in found}
    placed = [
        each
        for each in trials
        if each.known_score is not None and names.keys() <= each.params.keys()
    ]
    parallel = (
        (*_variables(experiment, placed, names, {}), *_results(placed))
        if placed
        else ()
    )
    budget = tick_text(float(experiment.max_frame), float(experiment.max_frame))
    return ExperimentFigure(
        f"{experiment.title}: search over "
        f"{count_text(len(experiment.variables), 'variable')}",
        f"{experiment.name} · {summary.status_text(experiment.trials)} · {budget} "
        "frames each",
        tuple(trials),
        _variables(experiment, trials, names, notes_of),
        _metrics(trials),
        _shading(trials),
        parallel,
        _shading(placed),
        tuple(found),
        names,
        _best_table(best_first, names),
        _notes(experiment, found),
    )


def picture(found: ExperimentFigure) -> fig.Figure:
    """A row for each metric, a column for each variable."""
    rows, columns = max(len(found.metrics), 1), max(len(found.variables), 1)
    width = columns * min(max(_PANELS_WIDTH / columns, _NARROWEST), _WIDEST)
    height = _HEADING + rows * _HEIGHTS.get(rows, _LOW)
    area = fig.Box(SIDE, _TOP, _LEFT + width, height)
    full = [each.status == "finished" for each in found.trials]
    seen = [text for text, kind in ((_FILLED, True), (_HOLLOW, False)) if kind in full]
    parts = (fig.TextLine(SIDE, 130, "   ".join(seen), 17), *_dots(found, area))
    shading = found.shading if found.trials else None
    width = area.right + _RIGHT
    return fig.Figure(
        found.title, found.subtitle, parts, width, _LETTERS, shading=shading
    )


def page(found: ExperimentFigure) -> fig.Figure:
    """From the top: the importance of each variable, parallel axes of all, the best
    Trials, and the dots of every metric over every variable."""
    rows = max(len(found.metrics), 1)
    bars = max(_BAR * len(found.importances) + _BAR_FOOT, _NOTE_ROW * len(found.notes))
    table, dots = (
        _TABLE_ROW * (len(found.best.rows) + 1),
        rows * _HEIGHTS.get(rows, _PAGE_LOW),
    )
    sections: list[tuple[float, Callable[..., Iterator[fig.Part]], str, str]] = [
        (bars, _importances, "Importance of each hyperparameter", ""),
        (_PARALLEL, _parallel, "Parallel coordinates", _PARALLEL_HINT),
        (table, _best, "The best trials", _ORDER),
        (
            _HEADING + dots,
            _dots,
            "Every metric over every variable",
            f"{_FILLED}   {_HOLLOW}",
        ),
    ]
    parts: list[fig.Part] = []
    top = float(_PAGE_TOP)
    for height, draw, heading, hint in sections:
        box = fig.Box(SIDE, top + _PART_HEADING, _PAGE_WIDTH - 2 * SIDE, height)
        parts.append(
            fig.TextLine(SIDE, box.top - 16, heading, 23, heading=True, hint=hint)
        )
        parts += draw(found, box)
        top = box.bottom + _BETWEEN
    return fig.Figure(
        found.title,
        found.subtitle,
        tuple(parts),
        _PAGE_WIDTH,
        _PAGE_LETTERS,
        shading=found.shading,
    )


def _nothing(box: fig.Box, text: str = "no results yet") -> fig.Panel:
    return fig.Panel(box, fig.Scale(), fig.Scale(), note=text)


def _importances(found: ExperimentFigure, box: fig.Box) -> Iterator[fig.Part]:
    """A bar for each variable, with a mark at chance; beside them how they are
    computed."""
    for i, note in enumerate(found.notes):
        yield fig.TextLine(
            box.left + _NOTES_LEFT, box.top + (i + 1) * _NOTE_ROW, note, 18
        )
    count = len(found.importances)
    if not count:
        return
    bars = tuple(
        _bar(i, each, found.names[each.path])
        for i, each in enumerate(found.importances)
    )
    names = tuple((bar.place, bar.label) for bar in bars)
    shares = tuple((i / 5, f"{20 * i}%") for i in range(6))
    panel = fig.Box(box.left + _BARS_LEFT, box.top, _BARS_WIDTH, _BAR * count)
    across = fig.Scale("share explained", ticks=shares)
    down = fig.Scale(ends=(count - 0.5, -0.5), ticks=names)
    yield fig.Panel(panel, across, down, bars=bars, horizontal=True)


def _bar(place: int, importance: Importance, name: str) -> fig.Bar:
    share, chance = importance.share, importance.chance
    label = fig.short(name, _NAME)
    if share is None or chance is None:
        return fig.Bar(place, label, None, 0.0, 0.0, math.nan, importance.reason)
    hover = (
        f"{html.escape(name)}: {share:.1%}<br>p = "
        f"{summary.number_text(importance.p_value, 4)}, of {importance.trials} "
        f"trials<br>chance: 95 % below {chance:.1%}"
    )
    text = f"{100 * share:.0f} %"
    return fig.Bar(
        place,
        label,
        share,
        0.0,
        0.0,
        chance,
        text,
        hollow=not importance.sure,
        hover=hover,
    )


def _parallel(found: ExperimentFigure, box: fig.Box) -> Iterator[fig.Part]:
    """A line for each Trial over axes of variables and results."""
    axes = tuple((axis.scale, axis.at) for axis in found.parallel)
    inside = box.inset(left=30, top=44, right=40)
    yield fig.Parallel(inside, axes, found.parallel_shading) if axes else _nothing(box)


def _best(found: ExperimentFigure, box: fig.Box) -> Iterator[fig.Part]:
    yield fig.Table(box, found.best) if found.best.rows else _nothing(box)


def _dots(found: ExperimentFigure, area: fig.Box) -> Iterator[fig.Part]:
    """A panel for each metric over each variable; zooming into one acts on its row and
    column."""
    rows, columns = len(found.metrics), len(found.variables)
    if not rows or not columns:
        yield _nothing(area, "no results yet" if columns else "nothing is varied")
        return
    filled = np.array([each.status == "finished" for each in found.trials], np.bool_)
    texts = _hover(found, brief=rows * columns * filled.size > _MANY)
    cells = area.inset(left=_LEFT, top=_HEADING).cells(rows, columns)
    for number, cell in enumerate(cells):
        i, j = divmod(number, columns)
        metric, variable = found.metrics[i], found.variables[j]
        across = variable.scale._replace(
            label=variable.scale.label if i == rows - 1 else "",
            most=5 if cell.width > _SHORT else 3,
            numbers=i == rows - 1,
            link=f"x{j}",
        )
        name = metric.scale.label
        up = metric.scale._replace(
            label="" if j else name, most=5, numbers=not j, link=f"y{i}"
        )
        dots = fig.Dots(name, variable.beside, metric.at, filled, texts)
        head = ("", "") if i else (variable.scale.label, variable.note)
        yield fig.Panel(
            cell.inset(right=_GAP, bottom=_GAP), across, up, *head, dots=dots
        )


def _hover(found: ExperimentFigure, *, brief: bool) -> list[str]:
    texts = []
    for trial in found.trials:
        lines = [
            f"trial {trial.trial}, {trial.status}",
            f"score {summary.number_text(trial.known_score, 4)}",
        ]
        if not brief:
            lines += summary.point_texts(trial, found.names)
        texts.append("<br>".join(map(html.escape, lines)))
    return texts


def importance_text(importance: Importance) -> str:
    """ "explains 62 %", or that no effect is seen; "" if it was not computed."""
    if importance.share is None:
        return ""
    share = f"{100 * importance.share:.0f} %"
    if importance.sure:
        return f"explains {share}"
    return "no effect seen" if share == "0 %" else f"{share}, maybe chance"


def _variables(
    experiment: summary.SearchSummary,
    trials: Sequence[TrialState],
    names: Mapping[str, str],
    notes: Mapping[str, str],
) -> tuple[Places, ...]:
    axes = []
    for variable in experiment.variables:
        values = [each.params.get(variable.path, MISSING) for each in trials]
        places = variable_places(variable, values, names[variable.path])
        axes.append(places._replace(note=notes.get(variable.path, "")))
    return tuple(axes)


def _metrics(trials: Sequence[TrialState]) -> tuple[Places, ...]:
    axes = []
    for name in summary.metric_names(trials):
        values = [each.metric(name) for each in trials]
        if name != _NOT_DRAWN and any(value is not None for value in values):
            axes.append(number_places(values, name.replace("_", " ")))
    if axes or not trials:
        return tuple(axes)
    return (number_places([each.known_score for each in trials], SCORE),)


def _results(trials: Sequence[TrialState]) -> list[Places]:
    """Score and strength; also the frames spent, if these differ."""
    columns: dict[str, list[float | None]] = {}
    if any(each.status != "finished" for each in trials):
        columns["frames"] = [float(each.frame) for each in trials]
    columns[SCORE] = [each.known_score for each in trials]
    columns[_STRENGTH] = [each.metric(_STRENGTH) for each in trials]
    return [
        number_places(each, name) for name, each in columns.items() if None not in each
    ]


def _shading(trials: Sequence[TrialState]) -> Shading:
    """By score, which orders the Trials."""
    at = number_places([each.known_score for each in trials]).at
    return Shading(SCORE, at, fig.limits([at], 0.0))


def _best_table(
    best_first: Sequence[TrialState], names: Mapping[str, str]
) -> TextTable:
    columns: dict[str, Callable[[TrialState], str]] = {
        "trial": lambda each: str(each.trial),
        "status": lambda each: summary.STATUS_WORDS.get(each.status, each.status),
        SCORE: lambda each: summary.number_text(each.known_score, 4),
        _STRENGTH: lambda each: summary.number_text(each.metric(_STRENGTH), 4),
        "frames": lambda each: tick_text(float(each.frame), float(each.frame)),
    }
    rows = []
    for each in [each for each in best_first if each.known_score is not None][
        :TABLE_TRIALS
    ]:
        point = (
            summary.value_text(each.params[path]) if path in each.params else "–"
            for path in names
        )
        rows.append((*(cell(each) for cell in columns.values()), *point))
    return TextTable((*columns, *names.values()), tuple(rows), words=1)


def _notes(
    experiment: summary.SearchSummary, found: Sequence[Importance]
) -> tuple[str, ...]:
    if all(each.share is None for each in found):
        return ()
    rests_on = max(each.trials for each in found)
    left_out = len(experiment.trials) - sum(map(comparable, experiment.trials))
    notes = [
        "How well a variable alone predicts the rank of a trial, from the "
        f"{rests_on - 1} others:",
        "0 % is as well as by chance, 100 % exactly. Effects of two variables only "
        "together",
        "are not seen. A filled bar is more than chance, a hollow one may be chance:",
        "without any effect, 19 of 20 variables stay left of the mark.",
    ]
    if any(each.status == "stopped" and comparable(each) for each in experiment.trials):
        notes += [
            "Trials that were stopped early rank behind those that finished, by "
            "frames,",
            "then by their score there.",
        ]
    if left_out:
        notes.append(
            f"{count_text(left_out, 'trial')} left out: no comparable result (failed, "
            "not ended)."
        )
    return tuple(notes)
