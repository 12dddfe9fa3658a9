"""Reads run folders, groups the seeds of each spec, and draws them into one graph."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast

import numpy as np

from slm_lab.charts.axis import EVAL_RETURNS, RETURNS, Y_AXES, Axis, x_axis
from slm_lab.charts.chart import Chart
from slm_lab.charts.final_returns import (
    ENOUGH_TO_TRIM,
    Improvement,
    TableRow,
    ending,
    improvement,
)
from slm_lab.charts.labels import APART, Named, labels, leaves
from slm_lab.charts.overlay import Aggregate, Seeds, overlay_chart
from slm_lab.charts.write import write_chart, write_print
from slm_lab.core.errors import UsageError
from slm_lab.core.text import count_text
from slm_lab.experiment.plot.environments import (
    by_environment,
    joined,
    missing,
    normalised,
)
from slm_lab.experiment.plot.request import RETURN_COLUMNS, PlotRequest
from slm_lab.experiment.plot.trials import (
    FoundTrial,
    ReadTrial,
    find_trials,
    read_trial,
)
from slm_lab.metrics.lines import Line
from slm_lab.spec.schema.messages import not_among
from slm_lab.storage.intact import read_saved_rows

NO_TITLE = "none"
"""The word for a figure without a title."""
MOST_CURVES = 8
"""The maximum number of curves of one folder; the ones with the best final return are
drawn."""
_BOOTSTRAP_SEED = 0
_AS_FAR = 0.95
"""The share of the longest seed's frames below which a seed counts as shorter."""


class Plotted(NamedTuple):
    """The drawn files, the table of results, and notes for reading them."""

    paths: tuple[Path, ...]
    replaced: tuple[Path, ...]
    """Those of the drawn files that were there before."""
    y_label: str
    endings: tuple[TableRow, ...]
    improvement: Improvement | None
    notes: tuple[str, ...]


def plot(request: PlotRequest, draws: bool = True) -> Plotted:
    """Draws `plot_{y}_vs_{x}.png` and `.html` into the folder `out`, or the file `out`.
    Raises UsageError for unknown words and folders, and if no run has values;
    SpecError; OSError."""
    request.check()
    y = request.axis
    trials, notes = _read(request, y)
    if scores := request.scores:
        trials = normalised(trials, scores)
        y = y._replace(label=f"normalised {y.label}")
    is_apart = bool(request.by or scores)
    groups, seeds, over = grouped(trials, request.x, request.labels, is_apart)
    panels = {"": seeds}
    several, is_joined = False, False
    if is_apart and len(_envs(groups)) > 1:
        panels = by_environment([group[0].env for group in groups], seeds)
        notes += missing(panels)
        several, is_joined = bool(request.by), not request.by
        panels = panels if several else {"": joined(panels)}
    drawing, ranking, *per_curve = np.random.default_rng(_BOOTSTRAP_SEED).spawn(
        2 + len(trials)
    )
    title = request.title
    if title is None:
        title = _title(groups, request.labels, sum(map(len, panels.values())))
    if request.log_y:
        notes += _without_place(panels)
    over = over._replace(
        label=over.label if request.x_label is None else request.x_label
    )
    y = y._replace(label=y.label if request.y_label is None else request.y_label)
    chart = overlay_chart(
        panels,
        over,
        y,
        cast(Aggregate, "iqm" if is_joined else request.statistic),
        drawing,
        title="" if title == NO_TITLE else title,
        lines=request.lines,
        log=request.log_y,
        width=request.points,
        with_profile=is_joined,
    )._replace(about=request.command)
    stem = f"plot_{y.file}_vs_{over.file}"
    paths, replaced = _write(chart, request, stem) if draws else ((), ())
    rows = [
        each._replace(label=f"{each.label}{APART}{env}") if several else each
        for env, curves in panels.items()
        for each in curves
    ]
    endings = tuple(
        ending(each, rng) for each, rng in zip(rows, per_curve, strict=False)
    )
    if y.column not in RETURN_COLUMNS:
        endings = tuple(each._replace(highest=None) for each in endings)
    notes += about_curves(groups, request.x, endings, is_apart)
    better = None if several else improvement(rows, ranking)
    return Plotted(paths, replaced, y.label, endings, better, tuple(notes))


def grouped(
    trials: Sequence[ReadTrial],
    x: str,
    given: Sequence[str] = (),
    per_env: bool = False,
) -> tuple[list[list[ReadTrial]], list[Seeds], Axis]:
    """Groups Trials with values into curves over the axis of the word `x`: the Trials
    and the seeds of each, and the axis. They get the labels `given`, or else those of
    their specs: `per_env` only what differs between the specs for one environment.
    Raises UsageError unless each curve has one of those given."""
    groups = _joined(trials)
    places: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        places.setdefault(group[0].env if per_env else "", []).append(i)
    names = dict(enumerate(given))
    for some in [] if given else places.values():
        names |= zip(
            some, labels([_named(groups[i], per_env) for i in some]), strict=True
        )
    if not per_env and len(set(given)) < len(given):
        raise UsageError("--label: two curves have the same one")
    if len(names) != len(groups):
        known = labels([_named(group) for group in groups])
        curves = ", ".join(f"{i}: {each}" for i, each in enumerate(known, start=1))
        count = count_text(len(groups), "curve")
        raise UsageError(f"--label: {len(given)} for {count}, in this order: {curves}")
    longest = max(each.seconds for trial in trials for each in trial.trainings)
    share = any(each.found.meta.sessions_per_training > 1 for each in trials)
    axis = x_axis(x, longest, "per Session" if share else "")
    seeds = [seeds_of(names[i], group, axis) for i, group in enumerate(groups)]
    return groups, seeds, axis


def _without_place(panels: Mapping[str, Sequence[Seeds]]) -> list[str]:
    """Notes for a logarithmic axis. Raises UsageError if no curve has a place on it."""
    curves = [(env, curve) for env, curves in panels.items() for curve in curves]
    low = [
        f"{each.label} in {env}" if len(panels) > 1 else each.label
        for env, each in curves
        if not any((line.y > 0).any() for line in each.lines)
    ]
    if len(low) == len(curves):
        raise UsageError("--log-y: no value is above zero")
    return [f"{label}: has no values above zero, which --log-y needs" for label in low]


def _write(
    chart: Chart, request: PlotRequest, stem: str
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Writes the chart; returns its files, and those of them that were there
    before."""
    folder = request.out.parent if request.is_file else request.out
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = {file for file in folder.iterdir() if file.is_file()}
        if request.is_file:
            paths = [write_print(chart, request.out)]
        else:
            scripts = None if request.standalone else folder
            paths = write_chart(chart, folder, stem, scripts)
    except OSError as error:
        raise UsageError(
            f"--out {request.out}: cannot be made: {error.strerror}"
        ) from None
    return tuple(paths), tuple(path for path in paths if path in before)


def _read(request: PlotRequest, y: Axis) -> tuple[list[ReadTrial], list[str]]:
    trials: dict[tuple[Path, int], ReadTrial] = {}
    notes: list[str] = []
    empty: list[UsageError] = []
    # data/* also names files that the lab keeps beside the runs, such as plotly.js.
    folders = [each for each in request.folders if not os.path.isfile(each)]
    for target in folders or request.folders:
        try:
            some, about = _of_target(target, request, y)
        except _NothingToDrawError as error:
            empty.append(error)
            continue
        trials |= {each.found.key: each for each in some}
        notes += about
    if not trials:
        raise empty[0]
    return list(trials.values()), [*notes, *(f"left out: {error}" for error in empty)]


def _of_target(
    target: str, request: PlotRequest, y: Axis
) -> tuple[list[ReadTrial], list[str]]:
    """The Trials to draw of a folder: the curves that ended best, and notes about the
    others. Raises _NothingToDrawError, and UsageError if the graph would go into a run
    folder."""
    notes: list[str] = []
    found = find_trials(target, request.data_dir, notes)
    for root in {each.run_dir.root for each in found}:
        if request.out.resolve().is_relative_to(root.resolve()):
            raise UsageError(
                f"--out {request.out}: is in the run folder {root.resolve()}; name "
                "another one"
            )
    read = [read_trial(each, request.x, y) for each in found]
    some = [each for each in read if each.trainings]
    if not some:
        raise _nothing_of(found, found[0].where if len(found) == 1 else target, y)
    groups = _joined(some)
    ranked = sorted(
        groups, key=lambda group: -fmean(each.final_return for each in group)
    )
    if missing := len(read) - len(some):
        notes.append(
            f"{target}: {missing} of {len(read)} trials have no values yet: left out"
        )
    if len(groups) > MOST_CURVES:
        notes.append(
            f"{target}: the {MOST_CURVES} of {len(groups)} curves that ended best; "
            "others can be named one by one"
        )
    kept = {each.found.key for group in ranked[:MOST_CURVES] for each in group}
    return [each for each in some if each.found.key in kept], notes


class _NothingToDrawError(UsageError):
    """A folder has no values for the y axis; other folders may have some."""


def _nothing_of(
    found: Sequence[FoundTrial], where: str, y: Axis
) -> _NothingToDrawError:
    message = "has no rows with a return yet: there is nothing to draw"
    if y.file == EVAL_RETURNS.file:
        message = (
            "has no evaluations: they are made with meta.rigorous_eval > 0; "
            f"--y {next(iter(Y_AXES))} draws the returns of the training"
        )
    elif y.column != RETURNS[0].column:
        rows = [read_saved_rows(paths, paths.rows) for paths in found[0].paths.values()]
        known = [name for name in rows[0].columns if rows[0].has_values(name)]
        message = (
            f"has no values of {y.column}: {not_among(y.column, [*Y_AXES, *known])}"
        )
    return _NothingToDrawError(f"{where} {message}")


def _joined(trials: Sequence[ReadTrial]) -> list[list[ReadTrial]]:
    """Groups Trials into curves: runs whose specs differ only in the seed form one, if
    they began with the same weights. Runs with the same seed stay separate, and so does
    a trial of a search, which may be selected for its luck."""
    groups: dict[tuple[str, int], list[ReadTrial]] = {}
    for each in trials:
        spec = json.dumps(_without_seeds(each.found), sort_keys=True)
        copy, one = 0, each.found
        while any(
            one.of_search
            or other.of_search
            or one.meta.random_seed == other.meta.random_seed
            for other in (each.found for each in groups.setdefault((spec, copy), []))
        ):
            copy += 1
        groups[spec, copy].append(each)
    return list(groups.values())


def _without_seeds(found: FoundTrial) -> dict[str, Any]:
    count = "max_session" if found.meta.distributed is False else "max_run"
    spec = {
        key: value for key, value in found.spec.items() if key not in ("name", "search")
    }
    meta: Mapping[str, Any] = spec.get("meta", {})
    left = {
        key: value for key, value in meta.items() if key not in ("random_seed", count)
    }
    return {**spec, **found.beginning, "meta": left, "name": found.name}


def _named(group: Sequence[ReadTrial], per_env: bool = False) -> Named:
    first = group[0].found
    spec = _without_seeds(first)
    if per_env:
        spec["env"] = {key: each for key, each in spec["env"].items() if key != "name"}
    tag = f"t{first.trial}" if first.of_search else ""
    del spec["name"]
    return Named(first.run_dir.label or first.name, leaves(spec), first.stamp, tag)


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


def _title(
    groups: Sequence[Sequence[ReadTrial]],
    given: Sequence[str],
    num_curves: int,
) -> str:
    """ "ppo_cartpole on CartPole-v1", with up to three names of each."""
    names, envs = given or [group[0].found.name for group in groups], _envs(groups)
    names = list(dict.fromkeys(names))
    what = ", ".join(names) if len(names) <= 3 else f"{num_curves} curves"
    where = ", ".join(envs) if len(envs) <= 3 else f"{len(envs)} environments"
    return f"{what} on {where}"


def about_curves(
    groups: Sequence[Sequence[ReadTrial]],
    x: str,
    endings: Sequence[TableRow],
    is_apart: bool = False,
) -> list[str]:
    """Notes for comparing curves and the table's numbers. `is_apart` if environments
    are."""
    trials = [each for group in groups for each in group]
    notes = []
    if not is_apart and len(envs := _envs(groups)) > 1:
        notes.append(
            f"returns in different environments cannot be compared: {', '.join(envs)}"
        )
    if (
        x == "frames"
        and len({each.found.meta.sessions_per_training for each in trials}) > 1
    ):
        notes.append(
            "frames are those of each Session; --x total_frames sums over all workers "
            "of a training"
        )
    if len(trials) > len(groups):
        notes.append(
            f"{len(trials)} runs, {count_text(len(groups), 'curve')}: runs that "
            "differ only in their seed are seeds of one"
        )
    notes += [
        f"{each.label}: its seeds have different lengths; the table has the final "
        "return of each"
        for each in endings
        if each.frames[0] < _AS_FAR * each.frames[1]
    ]
    notes += about_few_seeds(endings)
    return notes


def about_few_seeds(endings: Sequence[TableRow]) -> list[str]:
    """A note if some curves have several seeds, but too few for an interquartile
    mean."""
    few = sorted({each.seeds for each in endings if 1 < each.seeds < ENOUGH_TO_TRIM})
    if not few:
        return []
    return [
        f"of fewer than {ENOUGH_TO_TRIM} seeds the interquartile mean (IQM) is the "
        f"mean, and an interval from {' or '.join(map(str, few))} seeds is too narrow"
    ]


def _envs(groups: Sequence[Sequence[ReadTrial]]) -> list[str]:
    return list(dict.fromkeys(group[0].env for group in groups))
