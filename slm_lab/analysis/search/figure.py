"""What the graph of a search shows: axes, colours, importances, the best Trials, and words."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from slm_lab.analysis.figure.figure import limits
from slm_lab.analysis.figure.look import Shading, tick_text
from slm_lab.analysis.search.importance import Importance, comparable, importances
from slm_lab.analysis.search.summary import (
    SearchSummary,
    TrialOutcome,
    metric_names,
    ranked,
    short_names,
    value_text,
)
from slm_lab.analysis.search.variable_axes import (
    MISSING,
    Positions,
    number_scale,
    variable_scale,
)
from slm_lab.analysis.table import TextTable, count_text

BEST = 10
"""Trials in the table."""
SCORE = "score"

_NOT_DRAWN = "total_reward_ma"
"""Only in the table: its dots would repeat those of `final_return`."""
_COLOURED_BY = "strength"
_WORDS = {"stopped": "stopped early", "waiting": "not finished"}


@final
@dataclass(frozen=True, eq=False)
class AxisOf:
    """The axis of a variable or a metric over the Trials of the figure, with a note."""

    key: str
    """The path of the variable, or the metric as files name it."""
    name: str
    scale: Positions
    note: str = ""


@final
@dataclass(frozen=True, eq=False)
class ExperimentFigure:
    """Dots of n Trials over every variable for every metric; and what the page adds.

    `trials` are those with any value, in the order of drawing: the best last. `parallel` are axes
    over `parallel_trials`, those that have a place on each, and `parallel_shading` their colours.
    """

    title: str
    subtitle: str
    trials: tuple[TrialOutcome, ...]
    variables: tuple[AxisOf, ...]
    metrics: tuple[AxisOf, ...]
    shading: Shading
    parallel_trials: tuple[TrialOutcome, ...]
    parallel: tuple[AxisOf, ...]
    parallel_shading: Shading
    importances: tuple[Importance, ...]
    names: Mapping[str, str]
    """Of the variables, by path."""
    best: TextTable
    notes: tuple[str, ...]

    @property
    def filled(self) -> list[bool]:
        """(n,): which have spent the whole budget."""
        return [each.status == "finished" for each in self.trials]


def experiment_figure(experiment: SearchSummary) -> ExperimentFigure:
    """The whole search in one picture."""
    best_first = ranked(experiment.outcomes)
    trials = [each for each in reversed(best_first) if _measured(each)]
    names = short_names([variable.path for variable in experiment.variables])
    found = importances(experiment)
    notes_of = {each.path: importance_text(each) for each in found}
    scored = [each for each in trials if each.known_score is not None]
    placed = [each for each in scored if names.keys() <= each.point.keys()]
    return ExperimentFigure(
        f"{experiment.title}: search over {count_text(len(experiment.variables), 'variable')}",
        _subtitle(experiment),
        tuple(trials),
        _variable_axes(experiment, trials, names, notes_of),
        _metric_axes(trials),
        _shading(trials),
        tuple(placed),
        (*_variable_axes(experiment, placed, names, {}), *_result_axes(placed)),
        _shading(placed),
        tuple(found),
        names,
        _best_table(best_first, names),
        _notes(experiment, found),
    )


def importance_text(importance: Importance) -> str:
    """ "explains 62 %", or that there is nothing to see; "" where it was not computed."""
    if importance.share is None:
        return ""
    share = f"{100 * importance.share:.0f} %"
    if importance.sure:
        return f"explains {share}"
    return "no effect seen" if share == "0 %" else f"{share}, maybe chance"


def point_texts(trial: TrialOutcome, names: Mapping[str, str]) -> list[str]:
    """ "lr 0.003", "hid_layers [64, 64]"."""
    texts = []
    for path, name in names.items():
        if path in trial.point:
            value = value_text(trial.point[path])
            listed = isinstance(trial.point[path], list | tuple)
            texts.append(f"{name} [{value}]" if listed else f"{name} {value}")
    return texts


def number(value: float | None) -> str:
    """Four digits or so; "–" where there is none."""
    if value is None:
        return "–"
    digits = f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"
    return digits.replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


def status_text(outcomes: Sequence[TrialOutcome]) -> str:
    """ "50 trials: 30 finished, 17 stopped early, 3 failed"."""
    count = Counter(_WORDS.get(each.status, each.status) for each in outcomes)
    first = ("finished", "stopped early", "failed")
    order = [*(word for word in first if word in count), *sorted(set(count) - set(first))]
    trials, statuses = count_text(len(outcomes), "trial"), [f"{count[w]} {w}" for w in order]
    return f"{trials}: {', '.join(statuses)}" if statuses else trials


def _measured(trial: TrialOutcome) -> bool:
    return trial.known_score is not None or any(trial.metric(m) is not None for m in trial.metrics)


def _variable_axes(
    experiment: SearchSummary,
    trials: Sequence[TrialOutcome],
    names: Mapping[str, str],
    notes: Mapping[str, str],
) -> tuple[AxisOf, ...]:
    axes = []
    for variable in experiment.variables:
        path = variable.path
        scale = variable_scale(variable, [each.point.get(path, MISSING) for each in trials])
        axes.append(AxisOf(path, names[path], scale, notes.get(path, "")))
    return tuple(axes)


def _metric_axes(trials: Sequence[TrialOutcome]) -> tuple[AxisOf, ...]:
    """Of the metrics that any Trial has; of the score alone where there is none."""
    axes = []
    for name in metric_names(trials):
        if name == _NOT_DRAWN:
            continue
        values = [each.metric(name) for each in trials]
        if any(value is not None for value in values):
            axes.append(AxisOf(name, name.replace("_", " "), number_scale(values)))
    if axes or not trials:
        return tuple(axes)
    return (AxisOf(SCORE, SCORE, number_scale([each.known_score for each in trials])),)


def _result_axes(trials: Sequence[TrialOutcome]) -> list[AxisOf]:
    """Score and strength; and the frames spent where these differ."""
    columns: dict[str, Callable[[TrialOutcome], float | None]] = {
        SCORE: lambda each: each.known_score,
        _COLOURED_BY: lambda each: each.metric(_COLOURED_BY),
    }
    if any(each.status != "finished" for each in trials):
        columns = {"frames": lambda each: float(each.frame), **columns}
    axes = []
    for name, value in columns.items():
        values = [value(each) for each in trials]
        if all(each is not None for each in values):
            axes.append(AxisOf(name, name, number_scale(values)))
    return axes


def _shading(trials: Sequence[TrialOutcome]) -> Shading:
    """By strength; by score where no Trial has any."""
    name, values = _COLOURED_BY, [each.metric(_COLOURED_BY) for each in trials]
    if all(each is None for each in values):
        name, values = SCORE, [each.known_score for each in trials]
    at = number_scale(values).at
    return Shading(name, at, limits([at], 0.0))


def _best_table(best_first: Sequence[TrialOutcome], names: Mapping[str, str]) -> TextTable:
    columns: dict[str, Callable[[TrialOutcome], str]] = {
        "trial": lambda each: str(each.trial),
        "status": lambda each: _WORDS.get(each.status, each.status),
        SCORE: lambda each: number(each.known_score),
        _COLOURED_BY: lambda each: number(each.metric(_COLOURED_BY)),
        "frames": lambda each: tick_text(float(each.frame), float(each.frame)),
    }
    best = [each for each in best_first if each.known_score is not None][:BEST]
    rows = []
    for each in best:
        point = (value_text(each.point[path]) if path in each.point else "–" for path in names)
        rows.append((*(cell(each) for cell in columns.values()), *point))
    return TextTable((*columns, *names.values()), tuple(rows), words=1)


def _subtitle(experiment: SearchSummary) -> str:
    budget = tick_text(float(experiment.max_frame), float(experiment.max_frame))
    return f"{experiment.name} · {status_text(experiment.outcomes)} · {budget} frames each"


def _notes(experiment: SearchSummary, found: Sequence[Importance]) -> tuple[str, ...]:
    """How importances are computed, in lines."""
    if all(each.share is None for each in found):
        return ()
    rests_on = max(each.trials for each in found)
    left_out = len(experiment.outcomes) - sum(map(comparable, experiment.outcomes))
    notes = [
        f"How well a variable alone predicts the rank of a trial, from the {rests_on - 1} others:",
        "0 % is as well as by chance, 100 % exactly. Effects of two variables only together",
        "are not seen. A filled bar is more than chance, a hollow one may be chance: without",
        "any effect, 19 of 20 variables stay left of the mark.",
    ]
    if any(each.status == "stopped" and comparable(each) for each in experiment.outcomes):
        notes += [
            "Trials that were stopped early rank behind those that finished, by frames,",
            "then by their score there.",
        ]
    if left_out:
        notes.append(
            f"{count_text(left_out, 'trial')} left out: no comparable result (failed, not ended)."
        )
    return tuple(notes)
