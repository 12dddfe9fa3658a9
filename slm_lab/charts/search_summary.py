"""The results of a search in words, and as a table."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from slm_lab.core.text import (
    TextTable,
    count_text,
    error_summary,
    shortened,
    significant,
    with_spread,
)
from slm_lab.metrics.trial_metrics import TRIAL_METRICS
from slm_lab.metrics.trial_state import TrialState, ranked
from slm_lab.records.event_log import Confirmed, StudyState
from slm_lab.spec.search import Dimension

if TYPE_CHECKING:
    import pandas as pd

_NEEDS_MORE = frozenset(
    ("name", "type", "start_val", "end_val", "start_step", "end_step", "frame", "value")
)
"""Ends of paths that need the part before them."""
STATUS_WORDS = {"stopped": "stopped early", "waiting": "not finished"}
"""Statuses that figures call otherwise."""
_LONGEST = 24  # letters of a value


class SearchSummary(NamedTuple):
    """A search over the spec `name`; `title` is like "PPO on CartPole-v1". `trials` are
    in the order of their numbers; `max_frame` is the budget of each."""

    name: str
    title: str
    variables: tuple[Dimension, ...]
    trials: tuple[TrialState, ...]
    max_frame: int


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest end of each path that no other path has, by path:
    agent.net.optim_spec.lr is "lr". An end like name, start_val or an index of a list
    includes the part before it."""
    parts = {path: path.split(".") for path in paths}
    return {path: _short_name(path, parts) for path in paths}


def _short_name(path: str, parts: Mapping[str, Sequence[str]]) -> str:
    mine = parts[path]
    others = [other_parts for other, other_parts in parts.items() if other != path]
    fewest = 1
    while fewest < len(mine) and (
        mine[-fewest] in _NEEDS_MORE or mine[-fewest].isdecimal()
    ):
        fewest += 1
    for count in range(fewest, len(mine)):
        if all(other_parts[-count:] != mine[-count:] for other_parts in others):
            return ".".join(mine[-count:])
    return path


def numeric(values: Iterable[Any]) -> bool:
    """Whether all are numbers, and no booleans."""
    return all(
        isinstance(value, Real) and not isinstance(value, bool) for value in values
    )


def identity(value: Any) -> str:
    """The same for two values that are one: of numbers, also where one is whole."""
    if numeric([value]):
        return repr(float(value))
    return json.dumps(value, sort_keys=True, default=str)


def value_text(value: Any) -> str:
    """A value of a variable in a few letters: 0.0003, true, null, "64, 64" of a list.
    Numbers have three digits. A block is shown by its `name` and what else it holds."""
    return shortened(_text(value), _LONGEST)


def _text(value: Any) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case int():
            return str(value).replace("-", "−")
        case float():
            return number_text(value)
        case Mapping():
            parts = [f"{key} {_text(item)}" for key, item in value.items()]
            if "name" in value:
                parts.remove(f"name {_text(value['name'])}")
                parts.insert(0, str(value["name"]))
            return ", ".join(parts)
        case list() | tuple():
            return ", ".join(map(_item_text, value))
        case _:
            return str(value)


def _item_text(value: Any) -> str:
    text = _text(value)
    if isinstance(value, list | tuple):
        return f"[{text}]"
    return text


def number_text(value: float | None, count: int = 3) -> str:
    """A number with `count` digits: 0.0003, 3e−5, 12.5, 1.2e6; "–" if the value is
    missing."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return str(value)
    digits, exponent = f"{value:.{count - 1}e}".split("e")
    if not -5 < int(exponent) < 6:
        mantissa = digits.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    shown = f"{value:.{count}g}" if int(exponent) < count else f"{value:.0f}"
    return shown.replace("-", "−")


def point_texts(trial: TrialState, names: Mapping[str, str]) -> list[str]:
    """ "lr 0.003", "hid_layers [64, 64]"."""
    texts = []
    for path, name in names.items():
        if path in trial.params:
            value = value_text(trial.params[path])
            if isinstance(trial.params[path], list | tuple):
                value = f"[{value}]"
            texts.append(f"{name} {value}")
    return texts


def status_text(trials: Sequence[TrialState]) -> str:
    """ "50 trials: 30 finished, 17 stopped early, 3 failed"."""
    count = Counter(STATUS_WORDS.get(trial.status, trial.status) for trial in trials)
    first = ("finished", "stopped early", "failed")
    order = dict.fromkeys([*first, *sorted(count)])
    statuses = [f"{count[word]} {word}" for word in order if count[word]]
    whole = count_text(len(trials), "trial")
    return ": ".join(filter(None, (whole, ", ".join(statuses))))


def experiment_table(experiment: SearchSummary) -> "pd.DataFrame":
    """A row for each Trial, the best first: trial, status, score, frame, wall_t (s),
    restarts, one column per variable by its dotted path, one per metric, the
    `error_summary`. Missing values, and results of a failed Trial, are None; lists,
    blocks, booleans and null are JSON."""
    import pandas as pd

    trials = ranked(experiment.trials)
    columns: dict[str, list[Any]] = {
        "trial": [trial.trial for trial in trials],
        "status": [str(trial.status) for trial in trials],
        "score": [trial.known_score for trial in trials],
        "frame": [trial.frame for trial in trials],
        "wall_t": [trial.seconds for trial in trials],
        "restarts": [trial.restarts for trial in trials],
    }
    for path in (variable.path for variable in experiment.variables):
        columns[path] = [
            _cell(trial.params[path]) if path in trial.params else None
            for trial in trials
        ]
    for name in metric_names(trials):
        columns[name] = [trial.metric(name) for trial in trials]
    columns["error"] = [error_summary(trial.error or "") for trial in trials]
    return pd.DataFrame(columns, dtype=object)


def metric_names(trials: Iterable[TrialState]) -> list[str]:
    """The metrics of this version, and others that a Trial has."""
    further = (name for trial in trials for name in trial.metrics)
    return list(dict.fromkeys([*TRIAL_METRICS, *further]))


def _cell(value: Any) -> Any:
    if isinstance(value, str) or numeric([value]):
        return value
    return json.dumps(value, default=str)


def confirmed_table(
    search: StudyState, files: Mapping[int, Path], names: Mapping[str, str]
) -> TextTable:
    """A row for each spec that was trained again with fresh seeds, the best first.
    `files` has the spec file of each by its trial, `names` the short names of searched
    keys."""
    rows = []
    for result in search.results:
        state = search.trials[result.trial]
        difference = ""
        if result.mean is not None and state.score is not None:
            gain = result.mean - state.score
            difference = significant(gain)
            if gain > 0:
                difference = f"+{difference}"
        file = files.get(result.trial)
        rows.append(
            (
                "" if file is None else file.name,
                f"t{state.trial}",
                significant(state.score),
                confirmed_text(result),
                str(len(result.scores)),
                difference,
                ", ".join(point_texts(state, names)),
            )
        )
    header = (
        "spec",
        "trial",
        "in the search",
        "confirmed",
        "seeds",
        "difference",
        "values",
    )
    return TextTable(header, tuple(rows), spare=("in the search",))


def confirmed_text(result: Confirmed) -> str:
    """The mean over the seeds; with several seeds, also the standard deviation."""
    if result.mean is None:
        return "failed"
    spread = None
    if len(result.scores) > 1:
        spread = statistics.pstdev(result.scores)
    return with_spread(result.mean, spread)
