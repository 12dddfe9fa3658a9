"""The charts of a search: dots as a picture; a page adds importances, parallel axes and
a table."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from slm_lab.charts import search_summary as summary
from slm_lab.charts.chart import (
    Bar,
    Cells,
    Chart,
    Dots,
    Panel,
    Parallel,
    Scale,
    Shading,
    Table,
    limits,
)
from slm_lab.charts.importance import Importance, comparable, importances
from slm_lab.charts.search_summary import identity, numeric
from slm_lab.charts.write import write_chart
from slm_lab.core.text import TextTable, count_text, short_count
from slm_lab.core.types import FloatArray
from slm_lab.core.values import number_text, value_text
from slm_lab.metrics.trial_state import TABLE_TRIALS, TrialState, ranked
from slm_lab.spec.search import LISTS, Dimension

MOST_CATEGORIES = 12
"""Numbers picked from a longer list get an axis of numbers."""
MISSING = object()
"""Stands for a value that a Trial does not have."""

_MARGIN = 0.06  # of an axis, on both sides
_SPREAD = 0.28  # of the Trials in one category, at most
_STEP = 0.03  # for each of them
_GOLDEN = 0.5 * (math.sqrt(5) - 1)  # whose multiples, modulo 1, stay far apart


class Places(NamedTuple):
    """The places `at` (n,) of n Trials on an axis, NaN without one. Categories count
    from 0."""

    scale: Scale
    at: FloatArray

    @property
    def beside(self) -> FloatArray:
        """(n,): `at`, with the Trials of one category side by side, in no order."""
        moved = self.at.copy()
        for place, _ in enumerate(self.scale.categories):
            there = np.flatnonzero(self.at == place)
            room = min(_SPREAD, _STEP * there.size)
            shares = _GOLDEN * np.arange(1, there.size + 1) % 1
            moved[there] += room * (2 * shares - 1)
        return moved


def number_places(
    values: Sequence[float | None], label: str = "", whole: bool = False
) -> Places:
    """Plain numbers; None stands nowhere."""
    at = np.array(values, np.float64)
    return Places(Scale(label, limits([at], _MARGIN), whole=whole), at)


def variable_places(
    variable: Dimension, values: Sequence[Any], label: str = ""
) -> Places:
    """The axis of a variable over its `values` in n Trials, MISSING where one has none.
    Categories if a value is no number, numbers were picked from a short list, or are
    whole and close."""
    known = [value for value in values if value is not MISSING]
    choices = list(known)
    is_listed = variable.sampler in LISTS
    if is_listed:
        choices = [*variable.args, *known]
    kinds = {identity(value): value for value in choices}
    if not numeric(known) or (is_listed and len(kinds) <= MOST_CATEGORIES):
        return _categories(values, list(kinds.values()), label)
    is_whole = all(isinstance(value, int) for value in known)
    numbers = [math.nan if value is MISSING else value for value in values]
    at = np.array(numbers, np.float64)
    if "log" in variable.sampler and all(value > 0 for value in known):
        ends = limits([at], _MARGIN, log=True)
        return Places(Scale(label, ends, log=True), at)
    if is_whole and known and max(known) - min(known) < MOST_CATEGORIES:
        return _categories(values, range(min(known), max(known) + 1), label)
    return number_places(at.tolist(), label, is_whole)


def _categories(values: Sequence[Any], kinds: Sequence[Any], label: str) -> Places:
    if numeric(kinds):
        kinds = sorted(kinds)
    place = {identity(kind): float(i) for i, kind in enumerate(kinds)}
    at = [math.nan if value is MISSING else place[identity(value)] for value in values]
    texts = tuple(value_text(kind) for kind in kinds)
    ends = (-0.5, max(len(kinds), 1) - 0.5)
    return Places(Scale(label, ends, categories=texts), np.array(at, np.float64))


SCORE = "score"

_NOT_DRAWN = "total_reward_ma"
"""A metric that only the table has: its dots would repeat `final_return`."""
_STRENGTH = "strength"
_MARKS = {True: "● whole budget spent", False: "○ stopped early, or not ended"}
_PARALLEL_HINT = (
    "drag along an axis to choose trials, click it to let go; drag a name to move its "
    "axis"
)
_ORDER = "whole budgets first, then those stopped early, by frames"
_MANY = 4000  # dots, whose texts have to be short


class SearchCharts(NamedTuple):
    """The charts of a search: its `head`, and `dots` of every metric over every
    variable. Then the importance of each variable, parallel axes of all, and the best
    Trials."""

    head: Chart
    dots: Chart
    importance: Chart
    parallel: Chart
    best: Chart

    @property
    def picture(self) -> Chart:
        """The dots, under the head's title."""
        subtitle = f"{self.head.subtitle}   {self.dots.subtitle}"
        return self.dots._replace(title=self.head.title, subtitle=subtitle)

    @property
    def page(self) -> list[Chart]:
        """All charts that have anything to show, from the top."""
        return [self.head, self.importance, self.parallel, self.best, self.dots]


def draw_experiment_graph(
    experiment: summary.SearchSummary, folder: Path, prefix: str
) -> list[Path]:
    """Writes `{prefix}_experiment_graph.png` and, with more parts, `.html` into
    `folder`; returns both paths. Raises OSError."""
    charts = search_charts(experiment)
    stem = f"{prefix}_experiment_graph"
    return write_chart(charts.picture, folder, stem, folder.parent, page=charts.page)


def search_charts(experiment: summary.SearchSummary) -> SearchCharts:
    """The whole search in charts."""
    ranking = importances(experiment)
    budget = short_count(experiment.max_frame)
    variables = count_text(len(experiment.variables), "variable")
    head = Chart(
        f"{experiment.title}: search over {variables}",
        f"{experiment.name} · {summary.status_text(experiment.trials)} · {budget} "
        "frames each",
    )
    return SearchCharts(
        head,
        dots=_dots_chart(experiment, ranking),
        importance=_importance_chart(experiment, ranking),
        parallel=_parallel_chart(experiment),
        best=_best_chart(experiment),
    )


def _dots_chart(
    experiment: summary.SearchSummary, ranking: Sequence[Importance]
) -> Chart:
    """A row for each metric, a column for each variable, over the Trials with any
    value, the best on top. Zooming into a panel acts on its row and column."""
    best_last = reversed(ranked(experiment.trials))
    trials = [trial for trial in best_last if _has_values(trial)]
    names = experiment.names
    metrics = _metrics(trials)
    variables = _variables(experiment, trials)
    hints = {importance.path: importance_text(importance) for importance in ranking}
    full = np.array([trial.status == "finished" for trial in trials], np.bool_)
    is_brief = len(metrics) * len(variables) * full.size > _MANY
    hover = [_hover(trial, names, is_brief) for trial in trials]
    rows = []
    for i, metric in enumerate(metrics):
        row = []
        for j, (path, places) in enumerate(variables.items()):
            is_top = i == 0
            panel = Panel(
                places.scale.linked(f"x{j}", metric is metrics[-1]),
                metric.scale.linked(f"y{i}", j == 0),
                title=places.scale.label * is_top,
                hint=hints[path] * is_top,
                dots=Dots(
                    name=metric.scale.label,
                    x=places.beside,
                    y=metric.at,
                    filled=full,
                    hover=hover,
                ),
            )
            row.append(panel)
        rows.append(tuple(row))
    cells: Cells = tuple(rows)
    if not metrics or not variables:
        nothing = "no results yet" if variables else "nothing is varied"
        cells = ((Panel(note=nothing),),)
    marks = [text for is_full, text in _MARKS.items() if is_full in full]
    return Chart(
        "Every metric over every variable",
        "   ".join(marks),
        cells,
        shading=_shading(trials) if trials else None,
    )


def _has_values(trial: TrialState) -> bool:
    numbers = [trial.known_score, *map(trial.metric, trial.metrics)]
    return any(number is not None for number in numbers)


def _hover(trial: TrialState, names: Mapping[str, str], is_brief: bool) -> list[str]:
    lines = [
        f"trial {trial.trial}, {trial.status}",
        f"score {number_text(trial.known_score, 4)}",
    ]
    if is_brief:
        return lines
    return lines + summary.point_texts(trial, names)


def _variables(
    experiment: summary.SearchSummary, trials: Sequence[TrialState]
) -> dict[str, Places]:
    """The places of Trials on the axis of each variable, by its path."""
    names = experiment.names
    places = {}
    for path, variable in zip(names, experiment.variables, strict=True):
        values = [trial.params.get(path, MISSING) for trial in trials]
        places[path] = variable_places(variable, values, names[path])
    return places


def _metrics(trials: Sequence[TrialState]) -> list[Places]:
    axes = []
    for name in summary.metric_names(trials):
        values = [trial.metric(name) for trial in trials]
        if name != _NOT_DRAWN and any(value is not None for value in values):
            axes.append(number_places(values, name.replace("_", " ")))
    if axes or not trials:
        return axes
    return [number_places([trial.known_score for trial in trials], SCORE)]


def _shading(trials: Sequence[TrialState]) -> Shading:
    """The colours of the Trials by their score, which also orders them."""
    return Shading(SCORE, number_places([trial.known_score for trial in trials]).at)


def _importance_chart(
    experiment: summary.SearchSummary, ranking: Sequence[Importance]
) -> Chart:
    """A bar for each variable, with a mark at chance, and how they are computed."""
    names = experiment.names
    bars = tuple(_bar(importance, names[importance.path]) for importance in ranking)
    shares = Scale("share explained, %", (0.0, 100.0))
    panel = Panel(shares, bars=bars, horizontal=True, note="nothing is varied")
    notes = _notes(experiment, ranking)
    return Chart("Importance of each hyperparameter", "", ((panel,),), notes=notes)


def _bar(importance: Importance, name: str) -> Bar:
    share = importance.share
    chance = importance.chance
    if share is None or chance is None:
        return Bar(name, np.nan, importance.reason, mark=np.nan)
    p_value = number_text(importance.p_value, 4)
    hover = [
        f"{name}: {share:.1%}",
        f"p = {p_value}, of {importance.trials} trials",
        f"chance: 95 % below {chance:.1%}",
    ]
    return Bar(
        name,
        100 * share,
        f"{100 * share:.0f} %",
        mark=100 * chance,
        hollow=not importance.sure,
        hover="\n".join(hover),
    )


def importance_text(importance: Importance) -> str:
    """ "explains 62 %", or that no effect is seen; "" if it was not computed."""
    if importance.share is None:
        return ""
    share = f"{100 * importance.share:.0f} %"
    if importance.sure:
        return f"explains {share}"
    if share == "0 %":
        return "no effect seen"
    return f"{share}, maybe chance"


def _parallel_chart(experiment: summary.SearchSummary) -> Chart:
    """A line for each Trial that has a place on each axis, of variables and results."""
    title = "Parallel coordinates"
    paths = experiment.names.keys()
    trials = [
        trial
        for trial in experiment.trials
        if trial.known_score is not None and paths <= trial.params.keys()
    ]
    if not trials:
        return Chart(title, "", ((Panel(note="no results yet"),),))
    axes = [*_variables(experiment, trials).values(), *_results(trials)]
    lines = Parallel(tuple((axis.scale, axis.at) for axis in axes))
    return Chart(title, _PARALLEL_HINT, ((lines,),), shading=_shading(trials))


def _results(trials: Sequence[TrialState]) -> list[Places]:
    """Score and strength; also the frames spent, if these differ."""
    columns: dict[str, list[float | None]] = {}
    if any(trial.status != "finished" for trial in trials):
        columns["frames"] = [float(trial.frame) for trial in trials]
    columns[SCORE] = [trial.known_score for trial in trials]
    columns[_STRENGTH] = [trial.metric(_STRENGTH) for trial in trials]
    return [
        number_places(values, name)
        for name, values in columns.items()
        if None not in values
    ]


def _best_chart(experiment: summary.SearchSummary) -> Chart:
    names = experiment.names
    header = ("trial", "status", SCORE, _STRENGTH, "frames", *names.values())
    best_first = ranked(experiment.trials)
    scored = [trial for trial in best_first if trial.known_score is not None]
    rows = []
    for trial in scored[:TABLE_TRIALS]:
        point = [
            value_text(trial.params[path]) if path in trial.params else "–"
            for path in names
        ]
        row = (
            str(trial.trial),
            summary.STATUS_WORDS.get(trial.status, trial.status),
            number_text(trial.known_score, 4),
            number_text(trial.metric(_STRENGTH), 4),
            short_count(trial.frame),
            *point,
        )
        rows.append(row)
    table = TextTable(header, tuple(rows), words=1)
    return Chart("The best trials", _ORDER, table=Table(table))


def _notes(
    experiment: summary.SearchSummary, ranking: Sequence[Importance]
) -> tuple[str, ...]:
    if all(importance.share is None for importance in ranking):
        return ()
    rests_on = max(importance.trials for importance in ranking)
    left_out = len(experiment.trials) - sum(map(comparable, experiment.trials))
    notes = [
        "How well a variable alone predicts the rank of a trial, from the "
        f"{rests_on - 1} others: 0 % is as well as by chance, 100 % exactly. Effects "
        "of two variables only together are not seen. A filled bar is more than "
        "chance, a hollow one may be chance: without any effect, 19 of 20 variables "
        "stay left of the mark.",
    ]
    if any(
        trial.status == "stopped" and comparable(trial) for trial in experiment.trials
    ):
        notes.append(
            "Trials that were stopped early rank behind those that finished, by "
            "frames, then by their score there."
        )
    if left_out:
        notes.append(
            f"{count_text(left_out, 'trial')} left out: no comparable result (failed, "
            "not ended)."
        )
    return tuple(notes)
