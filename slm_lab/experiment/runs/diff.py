"""The differences between two runs: spec, results, and what they ran on."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from slm_lab.analysis.overlay.labels import leaves
from slm_lab.analysis.overlay.overlay import Y_AXES, x_axis
from slm_lab.analysis.overlay.table import Improvement, TableRow, ending, improvement
from slm_lab.analysis.table import TextTable
from slm_lab.experiment.plot.plot import seeds_of
from slm_lab.experiment.plot.runs import FoundTrial, read_trial
from slm_lab.experiment.search.outcomes import find_trial
from slm_lab.storage.run_dir import RunDir, origin_of

ABOUT = ("git_sha", "packages", "python", "machine", "environment")
"""The parts of a run's origin that may explain different results."""


class Diff(NamedTuple):
    """Two runs beside each other."""

    names: tuple[str, ...]
    spec: list[tuple[str, list[Any]]]
    """The dotted paths whose values differ, each with both values; None where a spec has none."""
    about: list[tuple[str, list[Any]]]
    """The same for the machines and versions."""
    endings: tuple[TableRow, ...]
    """Final returns, of the runs that have any."""
    improvement: Improvement | None


def diff(a: str, b: str, data_dir: Path) -> Diff:
    """The differences between two runs, or trials of searches, named as for `find_trial`.

    Raises UsageError, and SpecError for an unreadable spec.
    """
    trials = [find_trial(target, data_dir) for target in (a, b)]
    names = tuple(Path(each.where).name for each in trials)
    y, x = Y_AXES["mean_returns"], x_axis("frames", 0.0)
    reads = [
        (name, read_trial(each, "frames", y)) for name, each in zip(names, trials, strict=True)
    ]
    groups = [seeds_of(name, [read], x) for name, read in reads if read.trainings]
    *per_run, ranking = np.random.default_rng(0).spawn(len(groups) + 1)
    return Diff(
        names,
        differing([each.spec for each in trials]),
        differing([about_machine(each.run_dir) for each in trials]),
        tuple(ending(each, rng) for each, rng in zip(groups, per_run, strict=True)),
        improvement(groups, ranking),
    )


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
        "Versions and machine": [about_machine(each.run_dir) for each in trials.values()],
    }
    tables = {}
    for title, each in blocks.items():
        rows = tuple((path, *map(_json, values)) for path, values in differing(each))
        tables[title] = TextTable(("key", *trials), rows, len(trials))
    return tables


def _json(value: object) -> str:
    return "–" if value is None else json.dumps(value)


def about_machine(run_dir: RunDir) -> Mapping[str, Any]:
    """The parts `ABOUT` of a run's origin."""
    origin = origin_of(run_dir.spec_file)
    return {key: origin.get(key) for key in ABOUT}
