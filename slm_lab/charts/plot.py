"""Reads run folders, groups the seeds of each spec, and draws them into one graph."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast

import numpy as np

from slm_lab.charts.axis import EVAL_RETURNS, RETURNS, Y_AXES, Axis, x_axis
from slm_lab.charts.chart import Chart, Panel, curves_panel
from slm_lab.charts.final_returns import (
    ENOUGH_TO_TRIM,
    Results,
    TableRow,
    results,
)
from slm_lab.charts.labels import Named, apart, labels
from slm_lab.charts.overlay import (
    Aggregate,
    Seeds,
    overlay,
    overlay_chart,
    overlay_text,
)
from slm_lab.charts.request import RETURN_COLUMNS, PlotRequest
from slm_lab.charts.search_summary import identity, numeric
from slm_lab.charts.trainings import TrialCurves, read_trial
from slm_lab.charts.write import write_chart, write_print
from slm_lab.core.errors import UsageError
from slm_lab.core.text import count_text
from slm_lab.core.values import leaves, short_names, value_text
from slm_lab.metrics.lines import Line
from slm_lab.records.annotations import read_annotations
from slm_lab.records.archive import unpacked
from slm_lab.records.lookup import find_trials
from slm_lab.records.run_record import RunRecord
from slm_lab.spec.schema.messages import choice_message, unknown_name

NO_TITLE = "none"
"""The word for a figure without a title."""
MOST_CURVES = 8
"""The maximum number of curves of one folder; the ones with the best final return are
drawn."""
GROUPING_BLOCKS = ("agent", "env", "meta")
"""The blocks of a spec whose keys may group runs."""
ALL_KEYS = "those that slm-lab diff shows"
MOST_NAMED = 6
"""The most keys in a message."""
_AS_FAR = 0.95
"""The share of the longest seed's frames below which a seed counts as shorter."""


class Plotted(NamedTuple):
    """The drawn files, the table of results, and notes for reading them."""

    paths: tuple[Path, ...]
    replaced: tuple[Path, ...]
    """The drawn files that replaced earlier ones."""
    y_label: str
    results: Results
    notes: tuple[str, ...]


def plot(request: PlotRequest, draws: bool = True) -> Plotted:
    """Draws `plot_{y}_vs_{x}.png` and `.html` into the folder `out`, or the file `out`.
    Raises UsageError for unknown words and folders, and if no run has values;
    SpecError; OSError."""
    with ExitStack() as kept:
        folders = [kept.enter_context(unpacked(run)) for run in request.folders]
        return _plot(request._replace(folders=tuple(folders)), draws)


def _plot(request: PlotRequest, draws: bool) -> Plotted:
    request.check()
    y = request.axis
    trials, notes = _read(request, y)
    if request.scores:
        trials = normalised(trials, request.scores)
        y = y._replace(label=f"normalised {y.label}")
    groups, x = grouped(
        trials,
        request.x,
        request.labels,
        per_env=request.is_apart,
        group_by=request.group_by,
    )
    panels, panel_notes = _arrange(groups, request)
    notes += panel_notes
    rows = _rows(panels)
    title = request.title
    if title is None:
        title = _title(trials, request.labels, len(rows))
    if request.x_label is not None:
        x = x._replace(label=request.x_label)
    if request.y_label is not None:
        y = y._replace(label=request.y_label)
    is_joined = any(seeds.tasks for seeds in rows)
    chart = overlay_chart(
        panels,
        x,
        y,
        cast(Aggregate, "iqm" if is_joined else request.statistic),
        title="" if title == NO_TITLE else title,
        lines=request.lines,
        log=request.log_y,
        width=request.points,
    )._replace(about=request.command)
    paths: tuple[Path, ...] = ()
    replaced: tuple[Path, ...] = ()
    if draws:
        paths, replaced = _write(chart, request, f"plot_{y.file}_vs_{x.file}")
    numbers = results(rows, are_compared=len(panels) == 1)
    if y.column not in RETURN_COLUMNS:
        endings = [row._replace(highest=None) for row in numbers.endings]
        numbers = numbers._replace(endings=tuple(endings))
    notes += curve_notes(
        trials,
        num_curves=len(groups),
        x=request.x,
        endings=numbers.endings,
        is_apart=request.is_apart,
        group_by=request.group_by,
    )
    return Plotted(
        paths=paths,
        replaced=replaced,
        y_label=y.label,
        results=numbers,
        notes=tuple(notes),
    )


def _arrange(
    groups: Sequence[Seeds], request: PlotRequest
) -> tuple[dict[str, list[Seeds]], list[str]]:
    """The curves of each panel, by its environment; "" is the only panel. And notes.
    Raises UsageError if two curves of one environment have one label. It does so too if
    no curve has a place on a logarithmic axis."""
    panels = {"": list(groups)}
    notes: list[str] = []
    if request.is_apart and len({seeds.env for seeds in groups}) > 1:
        panels = group_by_environment(groups)
        notes += missing(panels)
        if not request.by:
            panels = {"": joined(panels)}
    if request.log_y:
        notes += _notes_on_log_axis(panels)
    return panels, notes


def _rows(panels: Mapping[str, Sequence[Seeds]]) -> list[Seeds]:
    """The curves of all panels, with their environments in the labels."""
    return [
        seeds._replace(label=apart(seeds.label, env))
        for env, curves in panels.items()
        for seeds in curves
    ]


def overlay_panel(
    trials: Sequence[TrialCurves], x: str, statistic: str, group_by: str | None = None
) -> tuple[Panel, list[str]]:
    """The curves of Trials with values over the axis of the word `x`, and notes. The
    `statistic` over seeds is "mean", without bands, "band" with them, or "iqm".
    `group_by` as in `grouped`."""
    groups, axis = grouped(trials, x, group_by=group_by)
    aggregate: Aggregate = "iqm" if statistic == "iqm" else "mean"
    curves = overlay(groups, aggregate)
    hint = overlay_text(groups, aggregate, curves)
    if statistic == "mean":
        curves = [curve._replace(band=None) for curve in curves]
        hint = "mean of the seeds"
    panel = curves_panel(axis.label, "", curves)._replace(hint=hint)
    return panel, curve_notes(trials, len(groups), "", group_by=group_by)


def grouped(
    trials: Sequence[TrialCurves],
    x: str,
    user_labels: Sequence[str] = (),
    per_env: bool = False,
    group_by: str | None = None,
) -> tuple[list[Seeds], Axis]:
    """Groups Trials with values into curves over the axis of the word `x`; returns them
    and the axis. Curves get `user_labels`, else labels from their specs: with `per_env`
    only what differs between the specs for one environment. With `group_by`, a key of
    the spec, a curve has all Trials of one environment with one value of it. Raises
    UsageError unless each curve has a user's label, and if no Trial has the key."""
    key = None if group_by is None else resolve_key(trials, group_by)
    groups = _joined(trials) if key is None else _group_by_value(trials, key)
    if not per_env and len(set(user_labels)) < len(user_labels):
        raise UsageError("--label: two curves have the same one")
    if user_labels and len(user_labels) != len(groups):
        known = _labels(groups, per_env=False, key=key)
        curves = ", ".join(f"{i}: {label}" for i, label in enumerate(known, start=1))
        count = count_text(len(groups), "curve")
        raise UsageError(
            f"--label: {len(user_labels)} for {count}, in this order: {curves}"
        )
    names = list(user_labels) or _labels(groups, per_env, key)
    longest = max(training.seconds for trial in trials for training in trial.trainings)
    counted = ""
    if any(trial.record.meta.sessions_per_training > 1 for trial in trials):
        counted = "per Session"
    axis = x_axis(x, longest, counted)
    seeds = [
        seeds_of(name, group, axis) for name, group in zip(names, groups, strict=True)
    ]
    return seeds, axis


def resolve_key(trials: Sequence[TrialCurves], word: str) -> str:
    """The dotted path in the specs of Trials that a word means. This is the word
    itself, or the only path that ends with it. Raises UsageError if there is none, or
    several."""
    paths = list(dict.fromkeys(path for trial in trials for path in _values(trial)))
    if word in paths:
        return word
    ends = [path for path in paths if path.endswith(f".{word}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        shown = ", ".join(ends[:MOST_NAMED])
        raise UsageError(f"--group-by {word}: {len(ends)} keys end so: {shown}")
    raise UsageError(f"--group-by {word}: {unknown_name('key', word, paths, ALL_KEYS)}")


def _values(trial: TrialCurves) -> dict[str, Any]:
    return leaves({key: trial.record.spec.get(key, {}) for key in GROUPING_BLOCKS})


def _group_by_value(trials: Sequence[TrialCurves], key: str) -> list[list[TrialCurves]]:
    """Groups Trials by environment and by the value of a key; numbers are in order."""
    groups: dict[tuple[str, str], list[TrialCurves]] = {}
    for trial in sorted(trials, key=lambda trial: _order(_values(trial).get(key))):
        text = identity(_values(trial).get(key))
        groups.setdefault((trial.env, text), []).append(trial)
    return list(groups.values())


def _order(value: Any) -> tuple[bool, float, str]:
    """Sorts numbers by size, and after them other values by their text."""
    is_number = numeric([value])
    return not is_number, float(value) if is_number else 0.0, str(value)


def _labels(
    groups: Sequence[Sequence[TrialCurves]], per_env: bool, key: str | None = None
) -> list[str]:
    """A label for each group; with `per_env` it is unique within one environment. With
    a `key` it is the value of the group."""
    if key is None:
        return labels([_named(group, per_env) for group in groups])
    paths = {path for group in groups for path in _values(group[0])}
    name = short_names(list(paths))[key]
    envs = [group[0].env for group in groups]
    if per_env or len(set(envs)) == 1:
        envs = [""] * len(groups)
    return [
        apart(f"{name} {_value_label(group[0], key)}", env)
        for group, env in zip(groups, envs, strict=True)
    ]


def _value_label(trial: TrialCurves, key: str) -> str:
    values = _values(trial)
    return value_text(values[key]) if key in values else "–"


def _notes_on_log_axis(panels: Mapping[str, Sequence[Seeds]]) -> list[str]:
    """Notes for a logarithmic axis. Raises UsageError if no curve has a place on it."""
    curves = [(env, seeds) for env, curves in panels.items() for seeds in curves]
    low = [
        apart(seeds.label, env)
        for env, seeds in curves
        if not any((line.y > 0).any() for line in seeds.lines)
    ]
    if len(low) == len(curves):
        raise UsageError("--log-y: no value is above zero")
    return [f"{label}: has no values above zero, which --log-y needs" for label in low]


def _write(
    chart: Chart, request: PlotRequest, stem: str
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Writes the chart; returns its files, and which of them replaced earlier ones."""
    folder = request.out.parent if request.is_file else request.out
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = set(folder.iterdir())
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


def _read(request: PlotRequest, y: Axis) -> tuple[list[TrialCurves], list[str]]:
    trials: dict[tuple[Path, int | None], TrialCurves] = {}
    notes: list[str] = []
    empty: list[UsageError] = []
    # data/* also names files that the lab keeps beside the runs, such as plotly.js.
    folders = [folder for folder in request.folders if not os.path.isfile(folder)]
    for target in folders or request.folders:
        try:
            chosen, target_notes = _read_target(target, request, y)
        except _NothingToDrawError as error:
            empty.append(error)
            continue
        trials |= {trial.record.key: trial for trial in chosen}
        notes += target_notes
    if not trials:
        raise empty[0]
    return list(trials.values()), [*notes, *(f"left out: {error}" for error in empty)]


def _read_target(
    target: str, request: PlotRequest, y: Axis
) -> tuple[list[TrialCurves], list[str]]:
    """The Trials to draw of a folder: the curves that ended best, and notes about the
    others. Raises _NothingToDrawError, and UsageError if the graph would go into a run
    folder."""
    notes: list[str] = []
    records = find_trials(target, request.data_dir, notes)
    for root in {trial.run_dir.root for trial in records}:
        if request.out.resolve().is_relative_to(root.resolve()):
            raise UsageError(
                f"--out {request.out}: is in the run folder {root.resolve()}; name "
                "another one"
            )
    if request.tags:
        records = _tagged(records, target, request.tags)
    trials = [read_trial(trial, request.x, y) for trial in records]
    with_values = [trial for trial in trials if trial.trainings]
    if not with_values:
        where = target
        if len(records) == 1:
            where = records[0].where
        raise _nothing_of(records, where, y)
    num_empty = len(trials) - len(with_values)
    if num_empty:
        notes.append(
            f"{target}: {num_empty} of {len(trials)} trials have no values yet: "
            "left out"
        )
    groups = _joined(with_values)
    if request.group_by is not None:
        with suppress(UsageError):  # other folders may have the key
            key = resolve_key(with_values, request.group_by)
            groups = _group_by_value(with_values, key)
    groups.sort(key=lambda group: -fmean(trial.final_return for trial in group))
    if len(groups) > MOST_CURVES:
        notes.append(
            f"{target}: the {MOST_CURVES} of {len(groups)} curves that ended best; "
            "others can be named one by one"
        )
    best = {trial.record.key for group in groups[:MOST_CURVES] for trial in group}
    return [trial for trial in with_values if trial.record.key in best], notes


def _tagged(
    records: Sequence[RunRecord], target: str, tags: Sequence[str]
) -> list[RunRecord]:
    """The records of runs with all tags. Raises _NothingToDrawError without any."""
    of_runs = {
        record.folder: read_annotations(record.run_dir).tags for record in records
    }
    chosen = [record for record in records if {*tags} <= {*of_runs[record.folder]}]
    if not chosen:
        known = sorted({tag for run_tags in of_runs.values() for tag in run_tags})
        listed = ", ".join(known) or "none"
        raise _NothingToDrawError(
            f"{target} has no run tagged {', '.join(tags)}; its tags: {listed}"
        )
    return chosen


class _NothingToDrawError(UsageError):
    """A folder has no values for the y axis; other folders may have some."""


def _nothing_of(
    records: Sequence[RunRecord], where: str, y: Axis
) -> _NothingToDrawError:
    message = "has no rows with a return yet: there is nothing to draw"
    if y.file == EVAL_RETURNS.file:
        message = (
            "has no evaluations: they are made with meta.rigorous_eval > 0; "
            f"--y {next(iter(Y_AXES))} draws the returns of the training"
        )
    elif y.column != RETURNS[0].column:
        rows = [records[0].rows(session) for session in records[0].sessions]
        known = [name for name in rows[0].columns if rows[0].has_values(name)]
        choice = choice_message(y.column, [*Y_AXES, *known])
        message = f"has no values of {y.column}: {choice}"
    return _NothingToDrawError(f"{where} {message}")


def _joined(trials: Sequence[TrialCurves]) -> list[list[TrialCurves]]:
    """Groups Trials into curves. Runs whose specs differ only in the seed form one
    curve, if they began with the same weights. Runs with the same seed stay separate.
    So does a trial of a search, which may be selected for its luck."""
    groups: dict[tuple[str, int], list[TrialCurves]] = {}
    for trial in trials:
        spec = json.dumps(_drop_seeds(trial.record), sort_keys=True)
        copy = 0
        while not _are_seeds([*groups.get((spec, copy), []), trial]):
            copy += 1
        groups.setdefault((spec, copy), []).append(trial)
    return list(groups.values())


def _are_seeds(trials: Sequence[TrialCurves]) -> bool:
    """Whether Trials of one spec are different seeds of it."""
    seeds = {trial.record.meta.random_seed for trial in trials}
    is_selected = any(trial.record.is_trial_of_search for trial in trials)
    return len(trials) == 1 or (len(seeds) == len(trials) and not is_selected)


def _drop_seeds(record: RunRecord) -> dict[str, Any]:
    count = "max_session" if record.meta.distributed is False else "max_run"
    spec = {
        key: value
        for key, value in record.spec.items()
        if key not in ("name", "search")
    }
    meta: Mapping[str, Any] = spec.get("meta", {})
    other_keys = {key: meta[key] for key in meta if key not in ("random_seed", count)}
    return {**spec, **record.beginning, "meta": other_keys, "name": record.name}


def _named(group: Sequence[TrialCurves], per_env: bool) -> Named:
    first = group[0].record
    spec = _drop_seeds(first)
    tag = ""
    if first.is_trial_of_search:
        tag = f"t{first.trial}"
    del spec["name"]
    return Named(
        first.label or first.name,
        leaves(spec),
        stamp=first.folder_time,
        tag=tag,
        panel=first.env * per_env,
    )


def seeds_of(label: str, group: Sequence[TrialCurves], x: Axis) -> Seeds:
    """All trainings of Trials, as one curve."""
    trainings = [training for trial in group for training in trial.trainings]
    return Seeds(
        label,
        env=group[0].env,
        lines=tuple(Line(t.line.x / x.unit_size, t.line.y) for t in trainings),
        final_return=np.array([training.final_return for training in trainings]),
        frames=np.array([training.frames for training in trainings]),
        planned=sum(len(trial.record.meta.trainings) for trial in group),
        pair_keys=tuple(key for trial in group for key in trial.pair_keys),
        are_forks=all(trial.record.forked_from is not None for trial in group),
    )


def _title(
    trials: Sequence[TrialCurves], labels: Sequence[str], num_curves: int
) -> str:
    """ "ppo_cartpole on CartPole-v1", with up to three names of each."""
    names = list(labels) or [trial.record.name for trial in trials]
    names = list(dict.fromkeys(names))
    envs = _envs(trials)
    what = ", ".join(names) if len(names) <= 3 else f"{num_curves} curves"
    where = ", ".join(envs) if len(envs) <= 3 else f"{len(envs)} environments"
    return f"{what} on {where}"


def curve_notes(
    trials: Sequence[TrialCurves],
    num_curves: int,
    x: str,
    endings: Sequence[TableRow] = (),
    is_apart: bool = False,
    group_by: str | None = None,
) -> list[str]:
    """Notes for comparing curves and the table's numbers. `is_apart` if environments
    are; `group_by` as in `grouped`."""
    envs = _envs(trials)
    shares = {trial.record.meta.sessions_per_training for trial in trials}
    notes = []
    if not is_apart and len(envs) > 1:
        notes.append(
            f"returns in different environments cannot be compared: {', '.join(envs)}"
        )
    if x == "frames" and len(shares) > 1:
        notes.append(
            "frames are those of each Session; --x total_frames sums over all workers "
            "of a training"
        )
    if len(trials) > num_curves:
        rule = "runs that differ only in their seed are seeds of one"
        if group_by is not None:
            rule = f"one for each value of {group_by}, whatever else differs"
        notes.append(f"{len(trials)} runs, {count_text(num_curves, 'curve')}: {rule}")
    notes += [
        f"{row.label}: its seeds have different lengths; the table has the final "
        "return of each"
        for row in endings
        if row.frames[0] < _AS_FAR * row.frames[1]
    ]
    return notes + few_seeds_notes(endings)


def few_seeds_notes(endings: Sequence[TableRow]) -> list[str]:
    """A note if some curves have several seeds, but too few for an interquartile
    mean."""
    few = sorted({row.seeds for row in endings if 1 < row.seeds < ENOUGH_TO_TRIM})
    if not few:
        return []
    return [
        f"of fewer than {ENOUGH_TO_TRIM} seeds the interquartile mean (IQM) is the "
        f"mean; an interval from {' or '.join(map(str, few))} seeds is too narrow"
    ]


def _envs(trials: Sequence[TrialCurves]) -> list[str]:
    return list(dict.fromkeys(trial.env for trial in trials))


def normalised(
    trials: Sequence[TrialCurves], scores: Mapping[str, float]
) -> list[TrialCurves]:
    """The Trials in units in which the Random agent's return is 0 and the score of
    their environment 1. The score of "" belongs to the only environment. Raises
    UsageError if one is unknown."""
    envs = _envs(trials)
    if len(envs) == 1 and "" in scores:
        scores = {**scores, envs[0]: scores[""]}
    named = [env for env in scores if env]
    for env in named:
        if env not in envs:
            raise UsageError(
                f"--normalise {env}=…: no run is in it; they are in {', '.join(envs)}"
            )
    zeros: dict[str, float] = {}
    for env in envs:
        if env not in scores:
            raise UsageError(
                f"--normalise: no score of {env}; add --normalise {env}=SCORE"
            )
        returns = [
            trial.record.metrics.get("random_return")
            for trial in trials
            if trial.env == env
        ]
        known = [value for value in returns if value is not None]
        if not known:
            raise UsageError(
                f"--normalise: the Random agent's return in {env} is not known until a "
                "run has ended"
            )
        if known[0] == scores[env]:
            raise UsageError(
                f"--normalise: the Random agent's return in {env} is the score"
            )
        zeros[env] = known[0]
    return [
        trial.scaled(zeros[trial.env], scores[trial.env] - zeros[trial.env])
        for trial in trials
    ]


def group_by_environment(groups: Sequence[Seeds]) -> dict[str, list[Seeds]]:
    """The curves of each environment. Raises UsageError if two of them have one
    label."""
    panels: dict[str, list[Seeds]] = {}
    for seeds in groups:
        curves = panels.setdefault(seeds.env, [])
        if seeds.label in [curve.label for curve in curves]:
            raise UsageError(f"--label {seeds.label}: names two curves of {seeds.env}")
        curves.append(seeds)
    return panels


def missing(panels: Mapping[str, Sequence[Seeds]]) -> list[str]:
    """A note for each method that some environments have no curve of."""
    return [
        f"{label}: only in {', '.join(tasks)}; curves with one label are one method "
        "in all environments, --label names them"
        for label, tasks in _group_by_label(panels).items()
        if len(tasks) < len(panels)
    ]


def joined(panels: Mapping[str, Sequence[Seeds]]) -> list[Seeds]:
    """One curve for each label, of the seeds in all environments."""
    return [
        Seeds(
            label,
            lines=tuple(line for seeds in tasks.values() for line in seeds.lines),
            final_return=np.concatenate([s.final_return for s in tasks.values()]),
            frames=np.concatenate([seeds.frames for seeds in tasks.values()]),
            planned=sum(seeds.planned for seeds in tasks.values()),
            tasks=tuple(len(seeds.lines) for seeds in tasks.values()),
        )
        for label, tasks in _group_by_label(panels).items()
    ]


def _group_by_label(
    panels: Mapping[str, Sequence[Seeds]],
) -> dict[str, dict[str, Seeds]]:
    methods: dict[str, dict[str, Seeds]] = {}
    for env, curves in panels.items():
        for seeds in curves:
            methods.setdefault(seeds.label, {})[env] = seeds
    return methods
