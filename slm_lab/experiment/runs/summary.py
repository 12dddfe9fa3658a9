"""What a list of runs shows of each, read from its folder. Needs no lock and no spec
model."""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, final

from rich.filesize import decimal

from slm_lab.core.errors import LabError
from slm_lab.core.files import folders_in, may_be_read, read_file, read_object
from slm_lab.core.text import duration_text, in_line, significant, with_spread
from slm_lab.metrics.reader import last_row
from slm_lab.metrics.trial_state import Status
from slm_lab.spec.modes import mode_of
from slm_lab.storage.event_log import SearchState
from slm_lab.storage.lock import is_locked
from slm_lab.storage.maybe_damaged import MOST, trial_metrics, value_at
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import (
    PLAN_BLOCK,
    PLAN_FILE,
    RUN_BLOCK,
    RunDir,
    runs_in,
    sets_env,
)

SLACK = 30.0
"""Seconds beyond three intervals of rows after which a Session without a row counts as
ended."""


class RunStatus(StrEnum):
    """How a run stands."""

    TRAINING = "training"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """Interrupted or killed; it can be resumed."""
    DAMAGED = "damaged"
    """Its spec or metrics cannot be read."""
    UNREADABLE = "unreadable"
    """Its folder may not be read by this user."""


@final
@dataclass(frozen=True)
class RunSummary:
    """A run in a list; by default one of which nothing is known."""

    run: str = ""
    """The name of its folder."""
    started: str = ""
    """ISO 8601, UTC; empty if it is unknown."""
    name: str = ""
    label: str = ""
    note: str = ""
    env: str = ""
    changed: tuple[str, ...] = ()
    """The run whose weights it began with, and the `-s` of its start and its
    resumes."""
    mode: str = ""
    """The way of parallel training, with the number of Sessions; or "search"."""
    status: RunStatus = RunStatus.DAMAGED
    is_dev: bool = False
    frames: int = 0
    """Of all Sessions."""
    budget: int | None = None
    """The frames of all Sessions at the end; None if those of trials may differ."""
    final_return: float | None = None
    """While it trains: the mean over Sessions of the recent return."""
    final_return_std: float | None = None
    """Over its Sessions, or its trainings in parallel."""
    seeds: int = 0
    """The number of Sessions, or trainings in parallel; of a search, those of a
    trial."""
    frames_per_s: float | None = None
    seconds_left: float | None = None
    """While it trains: the frames that are left over `frames_per_s`."""
    bytes: int = 0


def summary_of(run: RunDir) -> RunSummary:
    """The summary of a run or search, also a damaged one."""
    content = read_object(run.spec_file)
    name, spec = next(
        ((k, v) for k, v in content.items() if k != RUN_BLOCK), (run.spec_name, {})
    )
    origin = value_at(content, RUN_BLOCK, {})
    last = [(_of_training(row, spec), age) for row, age in _last_rows(run)]
    rows = [row for row, _ in last]
    metrics = _metrics(run)
    files = [run.trial_spec_file(0), run.trial_metrics_file(0)]
    is_whole = all(read_object(each) for each in files if each.exists()) and all(rows)
    status = _status(
        run, metrics, is_damaged=not (is_whole and value_at(spec, "env", {}))
    )
    is_training = status is RunStatus.TRAINING
    recent = [mean for row in rows if (mean := row.get("recent_return")) is not None]
    result = metrics.get("final_return")
    if recent and (is_training or result is None):
        result = sum(recent) / len(recent)
    speed = value_at(metrics, "throughput.frames_per_s", 0.0)
    if is_training or not speed:
        speed = sum(
            row.get("fps") or 0.0 for row, age in last if _is_due(row, spec, age)
        )
    frames = int(sum(row.get("frame") or 0.0 for row in rows))
    budget = _budget(run, spec)
    return RunSummary(
        run=run.root.name,
        started=value_at(origin, "started", ""),
        name=name,
        label=value_at(origin, "name", ""),
        note=value_at(origin, "note", ""),
        env=value_at(spec, "env.name", ""),
        changed=tuple(_changes(origin)),
        mode=_mode(run, spec),
        status=status,
        is_dev=value_at(origin, "mode") == "dev",
        frames=frames,
        budget=budget,
        final_return=result,
        final_return_std=None if is_training else metrics.get("final_return_std"),
        seeds=_trainings(spec),
        frames_per_s=speed or None,
        seconds_left=max(budget - frames, 0) / speed
        if is_training and budget and speed
        else None,
        bytes=_size(run.root),
    )


def summary_of_comparison(
    plan: Path, runs: Sequence[RunSummary], is_training: bool
) -> RunSummary:
    """All trainings of a comparison together, from its plan file. Raises as damaged
    JSON does."""
    content = json.loads(read_file(plan))
    about, spec = content[PLAN_BLOCK], next(iter(content.values()))
    planned = len(about["variants"]) * len(about["seeds"])
    ended = [each for each in runs if each.status is RunStatus.DONE]
    status = RunStatus.DONE if len(ended) == planned else RunStatus.STOPPED
    status = (
        RunStatus.FAILED
        if any(each.status is RunStatus.FAILED for each in runs)
        else status
    )
    budget, frames = (
        planned * spec["env"]["max_frame"],
        sum(each.frames for each in runs),
    )
    speed = sum(
        each.frames_per_s or 0 for each in runs if each.status is RunStatus.TRAINING
    )
    return RunSummary(
        started=about["started"],
        name=about["name"],
        env=spec["env"]["name"],
        mode=f"comparison, {len(ended)} of {planned} trainings",
        status=RunStatus.TRAINING if is_training else status,
        frames=frames,
        budget=budget,
        seeds=len(about["seeds"]),
        frames_per_s=speed or None,
        seconds_left=max(budget - frames, 0) / speed if is_training and speed else None,
        bytes=sum(each.bytes for each in runs),
    )


def run_document(run: RunDir, code: int) -> dict[str, Any]:
    """A run or search: what `slm-lab runs --json` has of it, its metrics, graphs and
    exit code."""
    metrics = {f"t{trial}": trial_metrics(run, trial) for trial in run.trials}
    known = {trial: each for trial, each in metrics.items() if each}
    return {
        **asdict(summary_of(run)),
        "folder": str(run.root),
        "exit_code": code,
        **({"trials": known} if run.is_search else {"metrics": known.get("t0", {})}),
        "graphs": [str(graph) for graph in sorted(run.root.glob("*_graph_*.png"))],
    }


def comparisons_in(data_dir: Path) -> Iterator[RunSummary]:
    """The summaries of the comparisons in a folder."""
    for plan in sorted(data_dir.glob(f"*/{PLAN_FILE.format('*')}")):
        folder = plan.parent
        found = damaged_summary(folder)
        with suppress(Exception):  # content that no comparison has written
            runs = [summary_of(run) for run in runs_in(folder)]
            found = summary_of_comparison(plan, runs, is_locked(folder))
        yield replace(found, run=folder.name)


def summaries_in(data_dir: Path) -> list[RunSummary]:
    """The summaries of all runs, searches and comparisons in a folder. One that may not
    be read has only its name."""
    closed = [folder for folder in folders_in(data_dir) if not may_be_read(folder)]
    return [
        *map(summary_of, runs_in(data_dir)),
        *comparisons_in(data_dir),
        *(
            replace(damaged_summary(folder), status=RunStatus.UNREADABLE)
            for folder in closed
        ),
    ]


def damaged_summary(folder: Path) -> RunSummary:
    """The summary of an unreadable folder: only when it last changed."""
    started = ""
    with suppress(OSError):
        started = datetime.fromtimestamp(folder.lstat().st_mtime, UTC).isoformat()
    return RunSummary(run=folder.name, started=started)


def _metrics(run: RunDir) -> dict[str, Any]:
    """The metrics of the Trial; in a search, of the trial with the highest final
    return."""
    every = [trial_metrics(run, trial) for trial in run.trials]
    known = [each for each in every if each.get("final_return") is not None]
    return max(
        known, key=lambda each: float(each["final_return"]), default=(every or [{}])[0]
    )


def _status(run: RunDir, metrics: Mapping[str, Any], is_damaged: bool) -> RunStatus:
    if is_locked(run.root):
        return RunStatus.TRAINING
    try:
        endings = _endings(run, metrics)
    except (LabError, OSError):
        is_damaged = True
    if is_damaged:
        return RunStatus.DAMAGED
    if Ending.FAILED in endings:
        return RunStatus.FAILED
    is_done = endings and all(each == Ending.FINISHED for each in endings)
    return RunStatus.DONE if is_done else RunStatus.STOPPED


def _endings(run: RunDir, metrics: Mapping[str, Any]) -> list[Any]:
    """How the Sessions ended; or how a search did, which fails if all its trials do."""
    if not run.is_search:
        return [value_at(each, "ending") for each in value_at(metrics, "sessions", [])]
    search_state = SearchState.from_log(run.event_log_file)
    trials = len(search_state.trials)
    if not trials or not search_state.is_over:
        return []
    all_failed = len(search_state.of(Status.FAILED)) == trials
    return [Ending.FAILED if all_failed else Ending.FINISHED]


def _changes(origin: Mapping[str, Any]) -> Iterator[str]:
    """The run that it began with, and each `-s` once, the last value of a key."""
    if parent := value_at(origin, "init_from.run", ""):
        yield f"--init-from {parent}"
    starts = [origin, *value_at(origin, "resumed", [])]
    texts = [str(text) for each in starts for text in value_at(each, "set", [])]
    yield from {text.partition("=")[0]: text for text in texts}.values()


def _mode(run: RunDir, spec: object) -> str:
    if run.is_search:
        return f"search, {len(run.trials)} trials"
    word = value_at(spec, "meta.distributed", "") or "seeds"
    return f"{word} × {value_at(spec, 'meta.max_session', 1)}"


def _trainings(spec: object) -> int:
    alone = value_at(spec, "meta.distributed") is False
    runs: int = value_at(spec, "meta.max_run", 1)
    return runs * value_at(spec, "meta.max_session", 1) if alone else runs


def _budget(run: RunDir, spec: object) -> int | None:
    trials = 1
    if run.is_search:
        # imports the models of all keys
        from slm_lab.spec.search import dimensions, num_trials

        searched = list(dimensions(value_at(spec, "search", {})))
        decided = (
            "env",
            "env.max_frame",
            *(d.path for d in searched if d.path[:4] == "meta"),
        )
        if {d.path for d in searched} & {*decided} or value_at(
            spec, "meta.search_scheduler"
        ):
            return None
        trials = num_trials(searched, value_at(spec, "meta.max_trial", 1))
    return trials * _trainings(spec) * value_at(spec, "env.max_frame", 0) or None


def _of_training(row: dict[str, float], spec: object) -> dict[str, float]:
    """A Session's row, with the frames of all if it alone writes for all that train
    together."""
    frame, total = row.get("frame"), row.get("total_frame")
    with suppress(LabError):  # a mode that is not installed
        if (
            frame
            and total
            and mode_of(value_at(spec, "meta.distributed", "") or False).one_agent
        ):
            return {
                **row,
                "frame": total,
                "fps": (row.get("fps") or 0.0) * total / frame,
            }
    return row


def _is_due(row: Mapping[str, float], spec: object, age: float) -> bool:
    """Whether a Session writes rows still: its last one, `age` seconds old, is not long
    ago."""
    frames, speed = value_at(spec, "meta.log_frequency", 0.0), row.get("fps")
    return not frames or not speed or age < SLACK + 3 * frames / speed


def _last_rows(run: RunDir) -> Iterator[tuple[dict[str, float], float]]:
    """The last row of each Session, {} if it cannot be read, and its age in s; of a
    search, of all trials."""
    for file in sorted(
        (run.root / "info").glob(f"{run.prefix}_t*_session_df_train.csv")
    ):
        try:
            row = {
                key: v
                for key, v in last_row(file).items()
                if v is not None and abs(v) < MOST
            }
            if row:
                yield row, time.time() - file.stat().st_mtime
        except (OSError, ValueError):
            yield {}, 0.0


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def cells(run: RunSummary) -> dict[str, str]:
    """The texts of a run; empty where they are unknown. What was set on the command
    line is named by the last parts of the keys, after the label and note."""
    changes = (
        re.sub(r"^[^=]*\.", "", text) for text in run.changed if not sets_env(text)
    )
    return {
        "run": in_line(run.run),
        "env": in_line(run.env),
        "changed": in_line(", ".join(filter(None, [run.label, run.note, *changes]))),
        "mode": run.mode,
        "status": f"{run.status}{' (dev)' * run.is_dev}",
        "left": "" if run.seconds_left is None else duration_text(run.seconds_left),
        "frames": f"{run.frames:,}",
        "final_return": with_spread(run.final_return, run.final_return_std),
        "frames_per_s": ""
        if run.frames_per_s is None
        else significant(run.frames_per_s),
        "bytes": decimal(run.bytes),
        "started": run.started[:16].replace("T", " "),
    }
