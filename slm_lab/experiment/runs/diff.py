"""The differences between two runs: spec, results, and what they ran on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, final

import numpy as np

from slm_lab.analysis.overlay.labels import leaves
from slm_lab.analysis.overlay.overlay import Y_AXES, x_axis
from slm_lab.analysis.overlay.table import Improvement, TableRow, ending, improvement
from slm_lab.analysis.table import TextTable
from slm_lab.experiment.plot.plot import seeds_of
from slm_lab.experiment.plot.runs import FoundTrial, find_trials, read_trial
from slm_lab.experiment.search.outcomes import chosen_trial
from slm_lab.storage.run_dir import RunDir, origin_of
from slm_lab.storage.run_lookup import find_folder

ABOUT = ("git_sha", "packages", "python", "machine", "environment")
"""The parts of a run's origin that may explain different results."""


@final
@dataclass(frozen=True)
class Diff:
    """Two runs beside each other; a difference is a dotted path and both values."""

    names: tuple[str, str]
    spec: tuple[tuple[str, Any, Any], ...]
    about: tuple[tuple[str, Any, Any], ...]
    endings: tuple[TableRow, ...]
    """Final returns, of the runs that have any."""
    improvement: Improvement | None


def diff(a: str, b: str, data_dir: Path) -> Diff:
    """The differences between two runs, or trials of searches, named as for `find_folder`.

    Raises UsageError, and SpecError for an unreadable spec.
    """
    trials = [_trial(target, data_dir) for target in (a, b)]
    names = tuple(_name(each) for each in trials)
    y, x = Y_AXES["mean_returns"], x_axis("frames", 0.0)
    groups = [
        seeds_of(name, [read], x)
        for name, each in zip(names, trials, strict=True)
        if (read := read_trial(each, "frames", y)).trainings
    ]
    *per_run, ranking = np.random.default_rng(0).spawn(len(groups) + 1)
    endings = tuple(ending(each, rng) for each, rng in zip(groups, per_run, strict=True))
    return Diff(
        (names[0], names[1]),
        _pairs([each.spec for each in trials]),
        _pairs([_about_machine(each.run_dir) for each in trials]),
        endings,
        improvement(groups, ranking),
    )


def _pairs(blocks: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, Any, Any], ...]:
    return tuple((path, *values) for path, values in differing(blocks))


def differing(blocks: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """The dotted paths whose values differ between any of the blocks, with the value of each block;
    None where it has none."""
    flat = [leaves(each) for each in blocks]
    rows = [(path, [each.get(path) for each in flat]) for path in dict.fromkeys(chain(*flat))]
    return [(path, values) for path, values in rows if any(each != values[0] for each in values)]


def difference_tables(trials: Mapping[str, FoundTrial]) -> dict[str, TextTable]:
    """How the specs of Trials differ, and what they ran on: tables with a column for each Trial,
    and values as JSON."""
    blocks = {
        "Differences of the specs": [each.spec for each in trials.values()],
        "Versions and machine": [_about_machine(each.run_dir) for each in trials.values()],
    }
    tables = {}
    for title, each in blocks.items():
        rows = tuple((path, *map(_json, values)) for path, values in differing(each))
        tables[title] = TextTable(("key", *trials), rows, len(trials))
    return tables


def _json(value: object) -> str:
    return "–" if value is None else json.dumps(value)


def _trial(target: str, data_dir: Path) -> FoundTrial:
    run_dir, number = find_folder(target, data_dir)
    (trial,) = find_trials(f"{run_dir.root}:t{chosen_trial(run_dir, number)}", data_dir)
    return trial


def _name(trial: FoundTrial) -> str:
    root = trial.run_dir.root.name
    return f"{root}:t{trial.trial}" if trial.of_search else root


def _about_machine(run_dir: RunDir) -> Mapping[str, Any]:
    """The parts `ABOUT` of a run's origin."""
    origin = origin_of(run_dir.spec_file)
    return {key: origin.get(key) for key in ABOUT}
