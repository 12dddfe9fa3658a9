"""One line of a list of runs, read without a lock and without the model of the spec."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, final

from rich.filesize import decimal

from slm_lab.core.errors import LabError
from slm_lab.core.files import folders_in, may_be_read, read_object
from slm_lab.core.recorded import value_at
from slm_lab.core.text import duration_text, escape_line, significant, with_spread
from slm_lab.core.values import leaves
from slm_lab.records.annotations import read_annotations
from slm_lab.records.comparison import ComparisonRecord
from slm_lab.records.lock import is_locked
from slm_lab.records.run_record import (
    LastRow,
    RunRecord,
    RunStatus,
    fork_point,
    trial_metrics,
)
from slm_lab.spec.modes import mode_of
from slm_lab.storage.run_dir import RUN_BLOCK, RunDir, runs_in, sets_env

PARAM_BLOCKS = ("agent", "env")
ALGORITHM = "agent.algorithm.name"
BUDGET = "env.max_frame"

SLACK = 30.0
"""Seconds beyond three intervals of rows after which a Session without a row counts as
ended."""


@final
@dataclass(frozen=True)
class Overview:
    """A run in a list; by default one of which nothing is known."""

    run: str = ""
    """The name of its folder."""
    started: str = ""
    """ISO 8601, UTC; empty if it is unknown."""
    name: str = ""
    label: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    """The tags, sorted."""
    env: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The values of its agent and its environment, by dotted path."""
    changed: tuple[str, ...] = ()
    """The run whose weights it began with, and the `-s` of its start and its
    resumes."""
    forked_from: str = ""
    """The name of the folder that a fork has left."""
    mode: str = ""
    """The way of parallel training, with the number of Sessions; or "search"."""
    status: RunStatus = RunStatus.DAMAGED
    is_dev: bool = False
    frames: int = 0
    """The environment steps of all Sessions."""
    budget: int | None = None
    """The frames of all Sessions at the end; None if trials may have different ones."""
    final_return: float | None = None
    """The final return. While it trains, or without one, it is the mean over Sessions
    of the recent return."""
    final_return_std: float | None = None
    """The spread over its Sessions, or its trainings in parallel."""
    seeds: int = 0
    """The number of Sessions, or of parallel trainings; in a search, of each trial."""
    frames_per_s: float | None = None
    seconds_left: float | None = None
    """The frames that are left, divided by `frames_per_s`; None unless it trains."""
    bytes: int = 0

    def matches(
        self, patterns: Sequence[str], status: str | None, tags: Sequence[str] = ()
    ) -> bool:
        """Whether it has the status (or is a dev run, for "dev"), all `tags`, and one
        of `patterns`. A pattern is a part of a name, or a name with `*`. A path that
        exists stands for its last part."""
        has_status = status in (None, self.status) or (status == "dev" and self.is_dev)
        fits = has_status and set(tags) <= set(self.tags)
        if not patterns or not fits:
            return fits
        names = (self.run, self.name, self.label, self.env, self.note, *self.tags)
        words = [name.lower() for name in names]
        parts = [Path(text).name if os.path.exists(text) else text for text in patterns]
        return any(
            part.lower() in word or fnmatch(word, part.lower())
            for part in parts
            for word in words
        )

    def cells(self) -> dict[str, str]:
        """The texts of the columns; empty where they are unknown. What was set on the
        command line is named by the last parts of the keys, after label and note."""
        settings = [text for text in self.changed if not sets_env(text)]
        changes = [re.sub(r"^[^=]*\.", "", text) for text in settings]
        words = [self.label, self.note, *changes]
        speed = self.frames_per_s
        return {
            "run": escape_line(self.run),
            "env": escape_line(self.env),
            "changed": escape_line(", ".join(word for word in words if word)),
            "tags": escape_line(", ".join(self.tags)),
            "mode": self.mode,
            "status": f"{self.status} (dev)" if self.is_dev else str(self.status),
            "left": ""
            if self.seconds_left is None
            else duration_text(self.seconds_left),
            "frames": f"{self.frames:,}",
            "final_return": with_spread(self.final_return, self.final_return_std),
            "frames_per_s": "" if speed is None else significant(speed),
            "bytes": decimal(self.bytes),
            "started": self.started[:16].replace("T", " "),
        }


def overview_of(run_dir: RunDir) -> Overview:
    """The overview of a run or search, also of a damaged one."""
    record = RunRecord(run_dir)
    content = read_object(run_dir.spec_file)
    names = [key for key in content if key != RUN_BLOCK]
    spec = record.run_spec_or_empty
    metrics = _metrics(record)
    rows = [_sum_over_workers(row, spec) for row in record.last_rows]
    is_training = record.status is RunStatus.TRAINING
    frames = int(sum(row.values.get("frame", 0.0) for row in rows))
    budget = _budget(record, spec)
    annotations = read_annotations(run_dir)
    speed = value_at(metrics, "throughput.frames_per_s", 0.0)
    if is_training or not speed:
        due = [row.values for row in rows if _is_due(row, spec)]
        speed = sum(values.get("fps", 0.0) for values in due)
    final_return = metrics.get("final_return")
    known = [row.values.get("recent_return") for row in rows]
    recent = [value for value in known if value is not None]
    if recent and (is_training or final_return is None):
        final_return = sum(recent) / len(recent)
    return Overview(
        run=record.folder.name,
        started=value_at(record.origin, "started", ""),
        name=names[0] if names else run_dir.spec_name,
        label=value_at(record.origin, "name", ""),
        note=annotations.note,
        tags=annotations.tags,
        params=_params(spec),
        env=value_at(spec, "env.name", ""),
        changed=tuple(_changes(record.origin)),
        forked_from=value_at(record.origin, "forked_from.run", ""),
        mode=_mode(record, spec),
        status=record.status,
        is_dev=value_at(record.origin, "mode") == "dev",
        frames=frames,
        budget=budget,
        final_return=final_return,
        final_return_std=None if is_training else metrics.get("final_return_std"),
        seeds=_trainings(spec),
        frames_per_s=speed or None,
        seconds_left=_seconds_left(frames, budget, speed) if is_training else None,
        bytes=_size(record.folder),
    )


def below_parents(runs: Sequence[Overview]) -> list[tuple[int, Overview]]:
    """The runs in order, but each fork below the run that it has left, with its
    depth."""
    known = {run.run for run in runs}
    forks: dict[str, list[Overview]] = {}
    for run in runs:
        if run.forked_from in known:
            forks.setdefault(run.forked_from, []).append(run)

    def tree(run: Overview, depth: int) -> Iterator[tuple[int, Overview]]:
        yield depth, run
        for fork in forks.get(run.run, ()):
            yield from tree(fork, depth + 1)

    roots = [run for run in runs if run.forked_from not in known]
    return [entry for root in roots for entry in tree(root, 0)]


def overview_of_comparison(
    comparison: ComparisonRecord, runs: Sequence[Overview], is_training: bool
) -> Overview:
    """All trainings of a comparison together. Raises as a `ComparisonRecord` does."""
    done = sum(run.status is RunStatus.DONE for run in runs)
    training = [run for run in runs if run.status is RunStatus.TRAINING]
    status = RunStatus.STOPPED
    if comparison.has_ended(done):
        status = RunStatus.DONE
    if any(run.status is RunStatus.FAILED for run in runs):
        status = RunStatus.FAILED
    if is_training:
        status = RunStatus.TRAINING
    elif comparison.log_problem:
        status = RunStatus.DAMAGED
    budget = comparison.budget
    frames = sum(run.frames for run in runs)
    speed = sum(run.frames_per_s or 0 for run in training)
    return Overview(
        started=comparison.block["started"],
        name=comparison.block["name"],
        env=comparison.specs[0]["env"]["name"],
        mode=comparison.mode_text(done),
        status=status,
        frames=frames,
        budget=budget,
        seeds=comparison.seeds,
        frames_per_s=speed or None,
        seconds_left=_seconds_left(frames, budget, speed) if is_training else None,
        bytes=sum(run.bytes for run in runs),
    )


def damaged_overview(folder: Path) -> Overview:
    """The overview of an unreadable folder: only when it last changed."""
    started = ""
    with suppress(OSError):
        started = datetime.fromtimestamp(folder.lstat().st_mtime, UTC).isoformat()
    return Overview(run=folder.name, started=started)


def overviews_in(data_dir: Path) -> list[Overview]:
    """The overviews of all runs, searches and comparisons in a folder. One that may not
    be read has only its name."""
    closed = [folder for folder in folders_in(data_dir) if not may_be_read(folder)]
    return [
        *(overview_of(run) for run in runs_in(data_dir)),
        *_comparisons_in(data_dir),
        *(
            replace(damaged_overview(folder), status=RunStatus.UNREADABLE)
            for folder in closed
        ),
    ]


def _comparisons_in(data_dir: Path) -> Iterator[Overview]:
    for folder in folders_in(data_dir):
        comparison = ComparisonRecord.at(folder)
        if comparison is None:
            continue
        overview = damaged_overview(folder)
        with suppress(Exception):  # content that no comparison has written
            runs = [overview_of(run) for run in runs_in(folder)]
            overview = overview_of_comparison(comparison, runs, is_locked(folder))
        yield replace(overview, run=folder.name)


def run_document(run_dir: RunDir, code: int) -> dict[str, Any]:
    """A run or search: what `slm-lab runs --json` has of it, its metrics, graphs and
    exit code."""
    metrics = {f"t{trial}": trial_metrics(run_dir, trial) for trial in run_dir.trials}
    known = {trial: values for trial, values in metrics.items() if values}
    results: dict[str, Any] = {"metrics": known.get("t0", {})}
    if run_dir.is_search:
        results = {"trials": known}
    return {
        **overview_document(overview_of(run_dir)),
        "folder": str(run_dir.root),
        "exit_code": code,
        **results,
        "graphs": [str(graph) for graph in sorted(run_dir.root.glob("*_graph_*.png"))],
    }


def overview_document(overview: Overview, params: Sequence[str] = ()) -> dict[str, Any]:
    """All facts of an overview; of its `params` only those named."""
    document = asdict(replace(overview, params={}))
    known = {path: overview.params.get(path) for path in params}
    return {**document, "params": known} if known else document


def varied_params(overviews: Sequence[Overview]) -> list[str]:
    """The keys in which runs of one algorithm in one environment differ. The keys with
    the most values come first. What differs between algorithms is no hyperparameter,
    nor is the length of a schedule that ends with the budget."""
    kinds: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run in overviews:
        if run.params:
            algorithm = str(run.params.get(ALGORITHM))
            kinds.setdefault((algorithm, run.env), []).append(run.params)
    counts: dict[str, int] = {}
    for alike in kinds.values():
        for path in dict.fromkeys(path for params in alike for path in params):
            texts = {json.dumps(params.get(path), default=str) for params in alike}
            follows_budget = path != BUDGET and all(
                params.get(path) == params.get(BUDGET) for params in alike
            )
            if len(texts) > 1 and not follows_budget:
                counts[path] = max(counts.get(path, 0), len(texts))
    return sorted(counts, key=lambda path: -counts[path])


def _params(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What is searched or set for an experiment: the agent and its environment. Its
    name has a column of its own."""
    blocks = {key: spec[key] for key in PARAM_BLOCKS if key in spec}
    with suppress(RecursionError):  # no run has written it
        return {
            path: value for path, value in leaves(blocks).items() if path != "env.name"
        }
    return {}


def _metrics(record: RunRecord) -> Mapping[str, Any]:
    """The metrics of the Trial; in a search, of the trial with the highest final
    return."""
    metrics = [trial.metrics for trial in record.trials]
    known = [values for values in metrics if values.get("final_return") is not None]
    if known:
        return max(known, key=lambda values: float(values["final_return"]))
    if metrics:
        return metrics[0]
    return {}


def _changes(origin: Mapping[str, Any]) -> Iterator[str]:
    """The run that it began with or has left, and each `-s` once, the last value of a
    key."""
    parent = value_at(origin, "init_from.run", "")
    if parent:
        yield f"--init-from {parent}"
    fork = fork_point(origin)
    if fork is not None:
        yield f"fork at {fork.frame:,} of {fork.run}"
    starts = [origin, *value_at(origin, "resumed", [])]
    texts = [str(text) for start in starts for text in value_at(start, "set", [])]
    yield from {text.partition("=")[0]: text for text in texts}.values()


def _mode(record: RunRecord, spec: object) -> str:
    if record.is_search:
        return f"search, {len(record.run_dir.trials)} trials"
    word = value_at(spec, "meta.distributed", "") or "seeds"
    mode = f"{word} × {value_at(spec, 'meta.max_session', 1)}"
    if value_at(spec, "meta.simulate") is not None:
        mode += ", virtual time"
    return mode


def _trainings(spec: object) -> int:
    runs: int = value_at(spec, "meta.max_run", 1)
    is_distributed = value_at(spec, "meta.distributed") is not False
    if is_distributed:
        return runs
    return runs * value_at(spec, "meta.max_session", 1)


def _budget(record: RunRecord, spec: object) -> int | None:
    trials = 1
    if record.is_search:
        from slm_lab.spec.search import dimensions, num_trials  # imports all models

        searched = list(dimensions(value_at(spec, "search", {})))
        paths = {dimension.path for dimension in searched}
        sets_budget = not paths.isdisjoint({"env", "env.max_frame"})
        sets_meta = any(path.startswith("meta") for path in paths)
        if sets_budget or sets_meta or value_at(spec, "meta.search_scheduler"):
            return None
        trials = num_trials(searched, value_at(spec, "meta.max_trial", 1))
    return trials * _trainings(spec) * value_at(spec, "env.max_frame", 0) or None


def _seconds_left(frames: int, budget: int | None, speed: float) -> float | None:
    if budget and speed:
        return max(budget - frames, 0) / speed
    return None


def _sum_over_workers(row: LastRow, spec: object) -> LastRow:
    """A Session's row, with the frames of all if it alone writes for all that train
    together."""
    frame = row.values.get("frame")
    total = row.values.get("total_frame")
    if not frame or not total:
        return row
    with suppress(LabError):  # a mode that is not installed
        mode = mode_of(value_at(spec, "meta.distributed", "") or False)
        if mode.one_agent:
            speed = row.values.get("fps", 0.0) * total / frame
            return row._replace(values={**row.values, "frame": total, "fps": speed})
    return row


def _is_due(row: LastRow, spec: object) -> bool:
    """Whether a Session writes rows still: its last one is not old."""
    frames = value_at(spec, "meta.log_frequency", 0.0)
    speed = row.values.get("fps")
    return not frames or not speed or row.age < SLACK + 3 * frames / speed


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total
