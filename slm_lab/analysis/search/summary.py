"""The results of a search: its variables, the outcomes of its Trials, and their table."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, final

from slm_lab.analysis.metrics import TRIAL_METRICS
from slm_lab.analysis.table import csv_bytes
from slm_lab.core.files import write_atomically
from slm_lab.core.text import error_summary

LISTS = ("choice", "grid_search")
"""The samplers that pick from a list."""

_NEEDS_MORE = frozenset(
    ("name", "type", "start_val", "end_val", "start_step", "end_step", "frame", "value")
)
"""Ends of paths that need the part before them."""
_LONGEST = 24  # letters of a value
_DIGITS = 3


@final
@dataclass(frozen=True)
class Variable:
    """A key of the spec that a search varies.

    `path` is dotted, as agent.net.optim_spec.lr. `values` are those that choice and grid_search
    pick from, in the spec's order.
    """

    path: str
    sampler: str
    values: tuple[Any, ...] = ()

    @property
    def logarithmic(self) -> bool:
        """Whether it was sampled evenly over its logarithm."""
        return "log" in self.sampler


@final
@dataclass(frozen=True)
class TrialOutcome:
    """The outcome of a Trial of a search, whose variables had the values `point`, by their paths.

    `status` is finished (the whole budget is spent), stopped (early, by the scheduler), failed,
    interrupted, running, waiting or paused. `frame` is the budget spent, `wall_t` its seconds.
    `score` is what the search maximises: the mean over the Sessions of `final_return`, or of
    `recent_return` where the scheduler has stopped the Trial.
    """

    trial: int
    status: str
    point: Mapping[str, Any]
    frame: int
    wall_t: float
    score: float | None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    error: str | None = None
    restarts: int = 0

    @property
    def known_score(self) -> float | None:
        """The score of a Trial that has a finite one and has not failed."""
        return None if self.status == "failed" else _finite(self.score)

    def metric(self, name: str) -> float | None:
        """One of `metrics`, where it is finite and the Trial has not failed."""
        return None if self.status == "failed" else _finite(self.metrics.get(name))


@final
@dataclass(frozen=True)
class SearchSummary:
    """A search over the spec `name`; `title` is like "PPO on CartPole-v1".

    `outcomes` are in the order of Trials; `max_frame` is the budget of each.
    """

    name: str
    title: str
    variables: tuple[Variable, ...]
    outcomes: tuple[TrialOutcome, ...]
    max_frame: int


def ranked(outcomes: Iterable[TrialOutcome]) -> list[TrialOutcome]:
    """The best first.

    First those that spent the whole budget, by score; then those that were stopped early, by frames
    and then score; then those that have not ended, in the same way; last those that failed or have
    no score. The Trial's number decides between equals.
    """
    return sorted(outcomes, key=_place)


def _place(outcome: TrialOutcome) -> tuple[float, ...]:
    score = outcome.known_score
    if score is None:
        return (3, 0, 0, outcome.trial)
    match outcome.status:
        case "finished":
            return (0, 0, -score, outcome.trial)
        case "stopped":
            return (1, -outcome.frame, -score, outcome.trial)
        case _:
            return (2, -outcome.frame, -score, outcome.trial)


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """By path its shortest end that no other path has: agent.net.optim_spec.lr is "lr".

    An end like name, start_val or an index of a list includes the part before it.
    """
    parts = {path: path.split(".") for path in paths}
    return {path: _short_name(path, parts) for path in paths}


def _short_name(path: str, parts: Mapping[str, Sequence[str]]) -> str:
    mine = parts[path]
    others = [each for other, each in parts.items() if other != path]
    fewest = 1
    while fewest < len(mine) and (mine[-fewest] in _NEEDS_MORE or mine[-fewest].isdecimal()):
        fewest += 1
    for count in range(fewest, len(mine)):
        if all(each[-count:] != mine[-count:] for each in others):
            return ".".join(mine[-count:])
    return path


def numeric(values: Iterable[Any]) -> bool:
    """Whether all are numbers, and no booleans."""
    return all(isinstance(each, Real) and not isinstance(each, bool) for each in values)


def identity(value: Any) -> str:
    """The same for two values that are one: of numbers, also where one is whole."""
    if numeric([value]):
        return repr(float(value))
    return json.dumps(value, sort_keys=True, default=str)


def value_text(value: Any) -> str:
    """A value of a variable in a few letters: 0.0003, true, null, "64, 64" of a list.

    Numbers have three digits. A block is shown by its `name` and what else it holds.
    """
    text = _text(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip(' ,')}…"


def _text(value: Any) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case int():
            return str(value).replace("-", "−")
        case float():
            return _number_text(value)
        case Mapping():
            rest = [f"{key} {_text(each)}" for key, each in value.items() if key != "name"]
            return ", ".join(([str(value["name"])] if "name" in value else []) + rest)
        case list() | tuple():
            return ", ".join(
                f"[{_text(each)}]" if isinstance(each, list | tuple) else _text(each)
                for each in value
            )
        case _:
            return str(value)


def _number_text(value: float) -> str:
    """0.0003, 3e−5, 12.5, 1.2e6."""
    if not math.isfinite(value):
        return str(value)
    digits, exponent = f"{value:.{_DIGITS - 1}e}".split("e")
    if not -5 < int(exponent) < 6:
        mantissa = digits.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    shown = f"{value:.{_DIGITS}g}" if abs(value) < 10**_DIGITS else f"{value:.0f}"
    return shown.replace("-", "−")


def write_experiment_df(path: Path, experiment: SearchSummary) -> None:
    """Writes a CSV with a line per Trial, the best first.

    Columns are trial, status, score, frame, wall_t (s), restarts, a column per variable under its
    dotted path, one per metric, and the headline of the error. Missing values are
    empty, and so are score and metrics of a Trial that failed. Lists, blocks, booleans and
    null are written as JSON. Raises OSError.
    """
    outcomes = ranked(experiment.outcomes)
    paths = [variable.path for variable in experiment.variables]
    metrics = metric_names(outcomes)
    fixed = ["trial", "status", "score", "frame", "wall_t", "restarts"]
    rows = []
    for each in outcomes:
        known = [each.trial, each.status, each.known_score, each.frame, each.wall_t, each.restarts]
        point = [_cell(each.point[path]) if path in each.point else None for path in paths]
        values = [each.metric(name) for name in metrics]
        rows.append([*known, *point, *values, error_summary(each.error or "")])
    write_atomically(path, csv_bytes([*fixed, *paths, *metrics, "error"], rows))


def metric_names(outcomes: Iterable[TrialOutcome]) -> list[str]:
    """Those of this page, and others that a Trial has."""
    further = (name for each in outcomes for name in each.metrics)
    return list(dict.fromkeys([*TRIAL_METRICS, *further]))


def _cell(value: Any) -> Any:
    return value if isinstance(value, str) or numeric([value]) else json.dumps(value, default=str)


def _finite(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else number
