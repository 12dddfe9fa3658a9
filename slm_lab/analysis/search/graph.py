"""The graph of a search: dots as a picture; a page adds importances, parallel axes and a table."""

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.figure.layout import LETTER, SIDE, short
from slm_lab.analysis.figure.look import Shading, tick_text
from slm_lab.analysis.figure.write import write_figure
from slm_lab.analysis.search.importance import Importance, comparable, importances
from slm_lab.analysis.search.places import MISSING, Places, number_places, variable_places
from slm_lab.analysis.search.summary import (
    STATUS_WORDS,
    SearchSummary,
    metric_names,
    point_texts,
    short_names,
    status_text,
    value_text,
)
from slm_lab.analysis.search.trial_state import TrialState, ranked
from slm_lab.analysis.table import TextTable, count_text

BEST = 10
"""Trials in the table."""
SCORE = "score"

_NOT_DRAWN = "total_reward_ma"
"""Only in the table: its dots would repeat those of `final_return`."""
_COLOURED_BY = "strength"
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


class ExperimentFigure(NamedTuple):
    """Dots of n Trials over every variable for every metric; and what the page adds.

    `trials` are those with any value, in the order of drawing: the best last. `parallel` are axes
    over the Trials that have a place on each, empty without any, and `parallel_shading` their
    colours. `names` are those of the variables, by path.
    """

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

    @property
    def filled(self) -> list[bool]:
        """(n,): which have spent the whole budget."""
        return [each.status == "finished" for each in self.trials]


def draw_experiment_graph(experiment: SearchSummary, folder: Path, prefix: str) -> list[Path]:
    """Writes `{prefix}_experiment_graph.png` and, with more parts, `.html` into `folder`; returns
    both paths. Raises OSError."""
    found = experiment_figure(experiment)
    stem = f"{prefix}_experiment_graph"
    return write_figure(picture(found), folder, stem, folder.parent, page(found))


def experiment_figure(experiment: SearchSummary) -> ExperimentFigure:
    """The whole search in one picture."""
    best_first = ranked(experiment.trials)
    trials = [each for each in reversed(best_first) if _measured(each)]
    names = short_names([variable.path for variable in experiment.variables])
    found = importances(experiment)
    notes_of = {each.path: importance_text(each) for each in found}
    placed = [
        each
        for each in trials
        if each.known_score is not None and names.keys() <= each.params.keys()
    ]
    parallel = (*_variables(experiment, placed, names, {}), *_results(placed)) if placed else ()
    budget = tick_text(float(experiment.max_frame), float(experiment.max_frame))
    return ExperimentFigure(
        f"{experiment.title}: search over {count_text(len(experiment.variables), 'variable')}",
        f"{experiment.name} · {status_text(experiment.trials)} · {budget} frames each",
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
    wide = min(max(_PANELS_WIDTH / columns, _NARROWEST), _WIDEST)
    foot = _foot(found, wide, _LETTERS)
    panels = fig.Box(_LEFT, foot, columns * wide - _GAP, rows * _HEIGHTS.get(rows, _LOW) - _GAP)
    width, height = panels.right + _GAP + _RIGHT, panels.top + _HEADING + _TOP
    parts = _dots(found, panels, _LETTERS)
    seen = [text for full, text in ((True, _FILLED), (False, _HOLLOW)) if full in found.filled]
    hint = fig.Words(SIDE, height - 130, "   ".join(seen), 17)
    inner = fig.Box(0, 0, width, height)
    shading = found.shading if found.trials else None
    return fig.Figure(
        found.title, found.subtitle, (hint, *parts), width, height, inner, _LETTERS, shading=shading
    )


def page(found: ExperimentFigure) -> fig.Figure:
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
        boxes.append(fig.Box(SIDE, top, _PAGE_WIDTH - 2 * SIDE, height))
        top -= _BETWEEN
    bars, parallel, table, dots = boxes
    panels = fig.Box(_LEFT, dots.bottom + foot, wide * columns, dots.height - foot - _HEADING)
    parts = (
        _heading(bars, "Importance of each hyperparameter"),
        *_importances(found, bars),
        _heading(parallel, "Parallel coordinates", _PARALLEL_HINT),
        _parallel(found, parallel),
        _heading(table, "The best trials"),
        fig.Table(table, found.best) if found.best.rows else _nothing(table),
        _heading(dots, "Every metric over every variable", f"{_FILLED}   {_HOLLOW}"),
        *_dots(found, panels, _PAGE_LETTERS),
    )
    inner = fig.Box(0, 0, _PAGE_WIDTH, whole)
    return fig.Figure(
        found.title, found.subtitle, parts, _PAGE_WIDTH, whole, inner, _PAGE_LETTERS,
        shading=found.shading,
    )  # fmt: skip


def _heading(box: fig.Box, text: str, hint: str = "") -> fig.Words:
    return fig.Words(box.left, box.top + 16, text, 23, heading=True, hint=hint)


def _nothing(box: fig.Box, text: str = "no results yet") -> fig.Words:
    return fig.Words(box.left + 0.45 * box.width, box.bottom + box.height / 2, text, 25)


def _importances(found: ExperimentFigure, box: fig.Box) -> Iterator[fig.Panel | fig.Words]:
    """A bar for each variable, with a mark at chance; beside them how they are computed."""
    for i, note in enumerate(found.notes):
        yield fig.Words(_NOTES_LEFT, box.top - (i + 1) * _NOTE_ROW, note, 18)
    count = len(found.importances)
    if not count:
        return
    bars = tuple(_bar(i, each, found.names[each.path]) for i, each in enumerate(found.importances))
    names = tuple((bar.place, bar.label) for bar in bars)
    shares = tuple((i / 5, f"{20 * i}%") for i in range(6))
    panel = fig.Box(_BARS_LEFT, box.top - _BAR * count, _BARS_WIDTH, _BAR * count)
    across = fig.Scale("share explained", ticks=shares)
    down = fig.Scale(ends=(count - 0.5, -0.5), ticks=names)
    yield fig.Panel(panel, across, down, bars=bars, horizontal=True)


def _bar(place: int, importance: Importance, name: str) -> fig.Bar:
    share, chance = importance.share, importance.chance
    label = short(name, _NAME)
    if share is None or chance is None:
        return fig.Bar(place, label, None, 0.0, 0.0, math.nan, importance.reason)
    hover = (
        f"{html.escape(name)}: {share:.1%}<br>p = {number(importance.p_value)}, of "
        f"{importance.trials} trials<br>chance: 95 % below {chance:.1%}"
    )
    text = f"{100 * share:.0f} %"
    return fig.Bar(
        place, label, share, 0.0, 0.0, chance, text, hollow=not importance.sure, hover=hover
    )


def _parallel(found: ExperimentFigure, box: fig.Box) -> fig.Parallel | fig.Words:
    """A line for each Trial over axes of variables and results."""
    if not found.parallel:
        return _nothing(box)
    axes = tuple((axis.scale, axis.at) for axis in found.parallel)
    inside = fig.Box(box.left + 30, box.bottom, box.width - 70, box.height - 44)
    return fig.Parallel(inside, axes, found.parallel_shading)


def _dots(found: ExperimentFigure, area: fig.Box, letters: float) -> list[fig.Panel | fig.Words]:
    """A panel for each metric over each variable; zooming into one acts on its row and column."""
    rows, columns = len(found.metrics), len(found.variables)
    if not rows or not columns:
        return [_nothing(area, "no results yet" if columns else "nothing is varied")]
    wide, high = (area.width + _GAP) / columns, (area.height + _GAP) / rows
    colours = found.shading.colours
    texts = _hover(found, brief=rows * columns * len(found.trials) > _MANY)
    parts: list[fig.Panel | fig.Words] = []
    for j, variable in enumerate(found.variables):
        most = 5 if wide > _SHORT else 3
        for i, metric in enumerate(found.metrics):
            lowest = i == rows - 1
            box = fig.Box(
                area.left + j * wide, area.top - (i + 1) * high + _GAP, wide - _GAP, high - _GAP
            )
            across = variable.scale._replace(
                label=variable.scale.label if lowest else "",
                most=most,
                numbers=lowest,
                upwards=lowest and _depth(variable, wide, letters) > 0,
                link=f"x{j}",
            )
            name = metric.scale.label
            label = "" if j else name
            up = metric.scale._replace(label=label, most=5, numbers=not j, link=f"y{i}")
            dots = fig.Dots(name, variable.beside, metric.at, colours, found.filled, texts)
            head = ("", "") if i else (variable.scale.label, variable.note)
            parts.append(fig.Panel(box, across, up, *head, dots=dots))
    return parts


def _depth(axis: Places, wide: float, letters: float) -> float:
    """Pixels of the longest category, if it has no room beside the others; otherwise 0."""
    if not axis.categories:
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


def importance_text(importance: Importance) -> str:
    """ "explains 62 %", or that there is nothing to see; "" where it was not computed."""
    if importance.share is None:
        return ""
    share = f"{100 * importance.share:.0f} %"
    if importance.sure:
        return f"explains {share}"
    return "no effect seen" if share == "0 %" else f"{share}, maybe chance"


def number(value: float | None) -> str:
    """Four digits or so; "–" where there is none."""
    if value is None:
        return "–"
    digits = f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"
    return digits.replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


def _measured(trial: TrialState) -> bool:
    return trial.known_score is not None or any(trial.metric(m) is not None for m in trial.metrics)


def _variables(
    experiment: SearchSummary,
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
    """Of the metrics that any Trial has; of the score alone where there is none."""
    axes = []
    for name in metric_names(trials):
        values = [each.metric(name) for each in trials]
        if name != _NOT_DRAWN and any(value is not None for value in values):
            axes.append(number_places(values, name.replace("_", " ")))
    if axes or not trials:
        return tuple(axes)
    return (number_places([each.known_score for each in trials], SCORE),)


def _results(trials: Sequence[TrialState]) -> list[Places]:
    """Score and strength; and the frames spent where these differ."""
    columns: dict[str, list[float | None]] = {}
    if any(each.status != "finished" for each in trials):
        columns["frames"] = [float(each.frame) for each in trials]
    columns[SCORE] = [each.known_score for each in trials]
    columns[_COLOURED_BY] = [each.metric(_COLOURED_BY) for each in trials]
    return [number_places(each, name) for name, each in columns.items() if None not in each]


def _shading(trials: Sequence[TrialState]) -> Shading:
    """By strength; by score where no Trial has any."""
    name, values = _COLOURED_BY, [each.metric(_COLOURED_BY) for each in trials]
    if all(each is None for each in values):
        name, values = SCORE, [each.known_score for each in trials]
    at = number_places(values).at
    return Shading(name, at, fig.limits([at], 0.0))


def _best_table(best_first: Sequence[TrialState], names: Mapping[str, str]) -> TextTable:
    columns: dict[str, Callable[[TrialState], str]] = {
        "trial": lambda each: str(each.trial),
        "status": lambda each: STATUS_WORDS.get(each.status, each.status),
        SCORE: lambda each: number(each.known_score),
        _COLOURED_BY: lambda each: number(each.metric(_COLOURED_BY)),
        "frames": lambda each: tick_text(float(each.frame), float(each.frame)),
    }
    rows = []
    for each in [each for each in best_first if each.known_score is not None][:BEST]:
        point = (value_text(each.params[path]) if path in each.params else "–" for path in names)
        rows.append((*(cell(each) for cell in columns.values()), *point))
    return TextTable((*columns, *names.values()), tuple(rows), words=1)


def _notes(experiment: SearchSummary, found: Sequence[Importance]) -> tuple[str, ...]:
    """How importances are computed, in lines."""
    if all(each.share is None for each in found):
        return ()
    rests_on = max(each.trials for each in found)
    left_out = len(experiment.trials) - sum(map(comparable, experiment.trials))
    notes = [
        f"How well a variable alone predicts the rank of a trial, from the {rests_on - 1} others:",
        "0 % is as well as by chance, 100 % exactly. Effects of two variables only together",
        "are not seen. A filled bar is more than chance, a hollow one may be chance: without",
        "any effect, 19 of 20 variables stay left of the mark.",
    ]
    if any(each.status == "stopped" and comparable(each) for each in experiment.trials):
        notes += [
            "Trials that were stopped early rank behind those that finished, by frames,",
            "then by their score there.",
        ]
    if left_out:
        notes.append(
            f"{count_text(left_out, 'trial')} left out: no comparable result (failed, not ended)."
        )
    return tuple(notes)
