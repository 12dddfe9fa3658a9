"""The results of a search in words, and as a table."""

import json
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
    significant,
    with_spread,
)
from slm_lab.core.values import short_names, value_text
from slm_lab.metrics.trial_metrics import TRIAL_METRICS
from slm_lab.metrics.trial_state import TrialState, ranked
from slm_lab.records.event_log import Confirmed, StudyState
from slm_lab.spec.search import Dimension

if TYPE_CHECKING:
    import pandas as pd

STATUS_WORDS = {"stopped": "stopped early", "waiting": "not finished"}
"""The words in figures for statuses whose own words say too little."""


class SearchSummary(NamedTuple):
    """A search over the spec `name`; `title` is like "PPO on CartPole-v1". `trials` are
    in the order of their numbers; `max_frame` is the budget of each."""

    name: str
    title: str
    variables: tuple[Dimension, ...]
    trials: tuple[TrialState, ...]
    max_frame: int

    @property
    def names(self) -> dict[str, str]:
        """The short names of the variables, by their paths."""
        return short_names([variable.path for variable in self.variables])


def numeric(values: Iterable[Any]) -> bool:
    """Whether all are numbers, and no booleans."""
    return all(
        isinstance(value, Real) and not isinstance(value, bool) for value in values
    )


def identity(value: Any) -> str:
    """A text that is the same for equal values. A whole number equals its float."""
    if numeric([value]):
        return repr(float(value))
    return json.dumps(value, sort_keys=True, default=str)


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
    """A row for each Trial, the best first. Its columns are trial, status, score,
    frame, wall_t (s) and restarts. Then one per variable by its dotted path, one per
    metric, and the `error_summary`. Missing values, and results of a failed Trial, are
    None; lists, blocks, booleans and null are JSON."""
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
