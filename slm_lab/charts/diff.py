"""The differences between two runs: spec, results, and what they ran on."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from slm_lab.charts.axis import Y_AXES, x_axis
from slm_lab.charts.final_returns import Results, results
from slm_lab.charts.plot import seeds_of
from slm_lab.charts.trainings import read_trial
from slm_lab.core.text import TextTable
from slm_lab.core.values import leaves
from slm_lab.records.lookup import open_trial
from slm_lab.records.run_record import RunRecord

ABOUT = ("git_sha", "packages", "python", "machine", "environment")
"""The parts of a run's origin that may explain different results."""


class Diff(NamedTuple):
    """Two runs beside each other."""

    tables: dict[str, TextTable]
    results: Results
    """The results of the runs that have some."""


def diff(a: str, b: str, data_dir: Path) -> Diff:
    """The differences between two runs, or trials of searches, named as for
    `open_trial`. Different labels replace the folders' names. Raises UsageError, and
    SpecError for an unreadable spec."""
    with open_trial(a, data_dir) as first, open_trial(b, data_dir) as second:
        trials = [first, second]
        names = [trial.label or _folder_name(trial) for trial in trials]
        if names[0] == names[1]:
            names = [*map(_folder_name, trials)]
        y = Y_AXES["mean_returns_ma"]
        curves = [read_trial(trial, "frames", y) for trial in trials]
        x = x_axis("frames", 0.0)
        groups = [
            seeds_of(name, [curve], x)
            for name, curve in zip(names, curves, strict=True)
            if curve.trainings
        ]
        return Diff(difference_tables(names, trials), results(groups))


def _folder_name(trial: RunRecord) -> str:
    """The name of its folder, also of a shared run; of a trial with its number."""
    number = trial.where.removeprefix(str(trial.place))
    return f"{trial.folder.name}{number}"


def difference_tables(
    names: Sequence[str], trials: Sequence[RunRecord]
) -> dict[str, TextTable]:
    """How the specs of Trials differ, and what they ran on. The tables have a row for
    each dotted path and a column for each Trial. Values are JSON, and "–" where a Trial
    has none."""
    blocks: dict[str, list[Mapping[str, Any]]] = {
        "Differences of the specs": [
            {**trial.spec, **trial.beginning} for trial in trials
        ],
        "Versions and machine": [
            {key: trial.origin.get(key) for key in ABOUT} for trial in trials
        ],
    }
    return {title: _table(names, values) for title, values in blocks.items()}


def _table(names: Sequence[str], blocks: Sequence[Mapping[str, Any]]) -> TextTable:
    flat = [leaves(block) for block in blocks]
    paths = dict.fromkeys(chain(*flat))
    rows = [(path, *(_text(values.get(path)) for values in flat)) for path in paths]
    differing = tuple(row for row in rows if len({*row[1:]}) > 1)
    return TextTable(("key", *names), differing, len(names))


def _text(value: object) -> str:
    """A value as JSON; – for none, and for an empty block."""
    if value in (None, {}):
        return "–"
    return json.dumps(value)
