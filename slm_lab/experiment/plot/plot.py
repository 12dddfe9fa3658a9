"""Reads run folders, groups the seeds of each spec, and draws them into one graph."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast, get_args

import numpy as np

from slm_lab.analysis.figure.axis import EVAL_RETURNS, Axis
from slm_lab.analysis.figure.grid import Line
from slm_lab.analysis.figure.write import write_figure
from slm_lab.analysis.overlay.labels import Named, labels, leaves
from slm_lab.analysis.overlay.overlay import X_WORDS, Y_AXES, Middle, Seeds, overlay, x_axis
from slm_lab.analysis.overlay.table import (
    ENOUGH_TO_TRIM,
    Improvement,
    TableRow,
    ending,
    improvement,
)
from slm_lab.core.errors import UsageError
from slm_lab.experiment.plot.runs import FoundTrial, ReadTrial, find_trials, read_trial
from slm_lab.spec.schema.messages import not_among

MOST_CURVES = 8
"""The maximum number of curves of one folder; the ones with the best final return are drawn."""
_BOOTSTRAP_SEED = 0
_AS_FAR = 0.95
"""The share of the longest seed's frames below which a seed counts as shorter."""


class PlotRequest(NamedTuple):
    """The options of the user's command: folders, axes, and the statistic over seeds."""

    folders: tuple[str, ...]
    y: str
    x: str
    statistic: str
    out: Path
    data_dir: Path
    standalone: bool = False
    """Whether the page contains plotly.js (5 MB)."""


class Plotted(NamedTuple):
    """The drawn files, the table of results, and notes for reading them."""

    paths: tuple[Path, ...]
    y_label: str
    endings: tuple[TableRow, ...]
    improvement: Improvement | None
    notes: tuple[str, ...]


def plot(request: PlotRequest) -> Plotted:
    """Draws `plot_{y}_vs_{x}.png` and `.html` into the folder `out`. Raises UsageError for unknown
    words and folders, and if no run has values; SpecError; OSError."""
    y = _checked(request)
    trials: dict[tuple[Path, int], ReadTrial] = {}
    notes: list[str] = []
    empty: list[UsageError] = []
    for target in request.folders:
        try:
            some, about = _of_target(target, request, y)
        except _NothingToDrawError as error:
            empty.append(error)
            continue
        trials |= {each.found.key: each for each in some}
        notes += about
    if not trials:
        raise empty[0]
    notes += [f"left out: {error}" for error in empty]
    groups, seeds, x = grouped(list(trials.values()), request.x)
    drawing, ranking, *per_curve = np.random.default_rng(_BOOTSTRAP_SEED).spawn(2 + len(seeds))
    middle = cast(Middle, request.statistic)
    drawn = overlay(seeds, x, y, _title(groups), middle, drawing)
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {request.out}: cannot be made: {error.strerror}") from None
    scripts = None if request.standalone else request.out
    paths = write_figure(drawn, request.out, f"plot_{y.file}_vs_{x.file}", scripts)
    endings = tuple(ending(each, rng) for each, rng in zip(seeds, per_curve, strict=True))
    notes += about_curves(groups, request.x, endings)
    return Plotted(tuple(paths), y.label, endings, improvement(seeds, ranking), tuple(notes))


class Grouped(NamedTuple):
    """Trials as curves: the Trials and the seeds of each, and the axis `x`."""

    groups: list[list[ReadTrial]]
    seeds: list[Seeds]
    x: Axis


def grouped(trials: Sequence[ReadTrial], x: str) -> Grouped:
    """Groups Trials with values into curves over the axis of the word `x`."""
    groups = _joined(trials)
    names = labels([_named(group) for group in groups])
    axis = x_axis(x, max(each.seconds for trial in trials for each in trial.trainings))
    named = zip(names, groups, strict=True)
    return Grouped(groups, [seeds_of(name, group, axis) for name, group in named], axis)


def _checked(request: PlotRequest) -> Axis:
    """The y axis. Raises UsageError for an unknown word."""
    words = {
        "--y": (request.y, tuple(Y_AXES)),
        "--x": (request.x, X_WORDS),
        "--statistic": (request.statistic, get_args(Middle)),
    }
    for option, (word, known) in words.items():
        if word not in known:
            raise UsageError(f"{option} {word}: {not_among(word, known)}")
    return Y_AXES[request.y]


def _of_target(target: str, request: PlotRequest, y: Axis) -> tuple[list[ReadTrial], list[str]]:
    """The Trials to draw of a folder: the curves that ended best, and notes about the others.
    Raises _NothingToDrawError, and UsageError if the graph would go into a run folder."""
    found = find_trials(target, request.data_dir)
    for root in {each.run_dir.root for each in found}:
        if request.out.resolve().is_relative_to(root.resolve()):
            raise UsageError(
                f"--out {request.out}: is in the run folder {root.resolve()}; name another one"
            )
    read = [read_trial(each, request.x, y) for each in found]
    some = [each for each in read if each.trainings]
    if not some:
        raise _nothing_of(found[0].where if len(found) == 1 else target, y)
    groups = _joined(some)
    ranked = sorted(groups, key=lambda group: -fmean(each.final_return for each in group))
    notes = []
    if missing := len(read) - len(some):
        notes.append(f"{target}: {missing} of {len(read)} trials have no values yet: left out")
    if len(groups) > MOST_CURVES:
        notes.append(
            f"{target}: the {MOST_CURVES} of {len(groups)} curves that ended best; "
            "others can be named one by one"
        )
    kept = {each.found.key for group in ranked[:MOST_CURVES] for each in group}
    return [each for each in some if each.found.key in kept], notes


class _NothingToDrawError(UsageError):
    """A folder has no values for the y axis; other folders may have some."""


def _nothing_of(where: str, y: Axis) -> _NothingToDrawError:
    message = "has no rows with a return yet: there is nothing to draw"
    if y is EVAL_RETURNS:
        message = (
            "has no evaluations: they are made with meta.rigorous_eval > 0; "
            f"--y {next(iter(Y_AXES))} draws the returns of the training"
        )
    return _NothingToDrawError(f"{where} {message}")


def _joined(trials: Sequence[ReadTrial]) -> list[list[ReadTrial]]:
    """Groups Trials into curves: runs whose specs differ only in the seed form one. Runs with the
    same seed stay separate, and so does a trial of a search, which may be selected for its luck."""
    groups: dict[tuple[str, int], list[ReadTrial]] = {}
    for each in trials:
        spec = json.dumps(_without_seeds(each.found), sort_keys=True)
        copy = 0
        while not _can_join(each.found, groups.setdefault((spec, copy), [])):
            copy += 1
        groups[spec, copy].append(each)
    return list(groups.values())


def _can_join(one: FoundTrial, group: Sequence[ReadTrial]) -> bool:
    return not any(
        one.of_search or other.of_search or one.meta.random_seed == other.meta.random_seed
        for other in (each.found for each in group)
    )


def _without_seeds(found: FoundTrial) -> dict[str, Any]:
    """The spec without its seed and its number of seeds."""
    count = "max_session" if found.meta.distributed is False else "max_run"
    spec = {key: value for key, value in found.spec.items() if key not in ("name", "search")}
    meta: Mapping[str, Any] = spec.get("meta", {})
    left = {key: value for key, value in meta.items() if key not in ("random_seed", count)}
    return {**spec, "meta": left, "name": found.name}


def _named(group: Sequence[ReadTrial]) -> Named:
    first = group[0].found
    spec = _without_seeds(first)
    tag = f"t{first.trial}" if first.of_search else ""
    del spec["name"]
    return Named(first.name, leaves(spec), first.stamp, tag)


def seeds_of(label: str, group: Sequence[ReadTrial], x: Axis) -> Seeds:
    """All trainings of Trials, as one curve."""
    trainings = [each for trial in group for each in trial.trainings]
    return Seeds(
        label,
        tuple(Line(each.line.x / x.unit_size, each.line.y) for each in trainings),
        np.array([each.final_return for each in trainings]),
        np.array([each.frames for each in trainings]),
        sum(len(each.found.meta.trainings) for each in group),
    )


def _title(groups: Sequence[Sequence[ReadTrial]]) -> str:
    """ "ppo_cartpole on CartPole-v1", with up to three names of each."""
    names, envs = list(dict.fromkeys(group[0].found.name for group in groups)), _envs(groups)
    what = ", ".join(names) if len(names) <= 3 else f"{len(names)} specs"
    where = ", ".join(envs) if len(envs) <= 3 else f"{len(envs)} environments"
    return f"{what} on {where}"


def about_curves(
    groups: Sequence[Sequence[ReadTrial]], x: str, endings: Sequence[TableRow]
) -> list[str]:
    """Notes for comparing the curves, and the numbers in the table."""
    trials = [each for group in groups for each in group]
    notes = []
    if len(envs := _envs(groups)) > 1:
        notes.append(f"returns in different environments cannot be compared: {', '.join(envs)}")
    if x == "frames" and len({each.found.meta.sessions_per_training for each in trials}) > 1:
        notes.append(
            "frames are those of each Session; --x total_frames sums over all workers of a training"
        )
    if len(trials) > len(groups):
        curves = f"{len(groups)} curve{'' if len(groups) == 1 else 's'}"
        notes.append(
            f"{len(trials)} runs, {curves}: runs that differ only in their seed are seeds of one"
        )
    notes += [
        f"{each.label}: its seeds have different lengths; the table has the final return of each"
        for each in endings
        if each.frames[0] < _AS_FAR * each.frames[1]
    ]
    few = sorted({each.seeds for each in endings if 1 < each.seeds < ENOUGH_TO_TRIM})
    if few:
        notes.append(
            f"of fewer than {ENOUGH_TO_TRIM} seeds the interquartile mean (IQM) is the mean, and "
            f"an interval from {' or '.join(map(str, few))} seeds is too narrow"
        )
    return notes


def _envs(groups: Sequence[Sequence[ReadTrial]]) -> list[str]:
    envs = (group[0].found.spec.get("env", {}).get("name", "?") for group in groups)
    return list(dict.fromkeys(map(str, envs)))
