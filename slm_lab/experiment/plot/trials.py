"""Finds the Trials in the run folders that a user names, and reads their rows so far.

Reading rows imports no plug-in of the spec, and validates only a few keys of meta."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import ValidationError

from slm_lab.charts.axis import EVAL_RETURNS, Axis, line, x_axis
from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.metrics.lines import Line, mean_lines
from slm_lab.metrics.reader import Rows
from slm_lab.spec.load import recorded_spec
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.storage.intact import read_saved_rows
from slm_lab.storage.maybe_damaged import value_at
from slm_lab.storage.run_dir import RunDir, SessionPaths, origin_of, runs_in
from slm_lab.storage.run_lookup import find_folder

_NEEDED = ("distributed", "max_session", "max_run", "actor_learner", "random_seed")
"""The keys of meta that are read; others may come from an earlier version."""


ReadRows: TypeAlias = Callable[[SessionPaths, Path], Rows]
"""Reads a file of rows of a Session; raises UsageError if it is damaged."""


class FoundTrial(NamedTuple):
    """A Trial in a run folder, with its recorded spec."""

    run_dir: RunDir
    trial: int
    name: str
    spec: Mapping[str, Any]
    """As the file holds it, with every default."""
    meta: MetaSpec
    """Only the keys that determine its Sessions; other keys have their defaults."""
    of_search: bool
    """Whether its folder is that of a search, with many Trials."""

    @property
    def key(self) -> tuple[Path, int]:
        """Identifies the Trial, however the user named it."""
        return self.run_dir.root.resolve(), self.trial

    @property
    def paths(self) -> dict[int, SessionPaths]:
        """The files of each Session that writes rows."""
        return {s: self.run_dir.session(self.trial, s) for s in self.meta.writers}

    @property
    def beginning(self) -> dict[str, str]:
        """The weights that it began with, by the option that took them; empty if they
        were drawn."""
        saved = value_at(origin_of(self.run_dir.spec_file), "init_from", {})
        if not saved:
            return {}
        agent = f"Session {saved.get('session')} at frame {saved.get('frame')}"
        parts = ", ".join(map(str, value_at(saved, "taken", [])))
        return {"--init-from": f"{saved.get('run')}, {agent}: {parts}"}

    @property
    def where(self) -> str:
        """Its name in messages."""
        root = str(self.run_dir.root)
        return f"{root}:t{self.trial}" if self.of_search else root

    @property
    def stamp(self) -> str:
        """Its start time from the folder's name; the whole name if it contains none."""
        return self.run_dir.root.resolve().name.removeprefix(f"{self.run_dir.prefix}_")


def find_trials(
    target: str, data_dir: Path, notes: list[str] | None = None
) -> list[FoundTrial]:
    """The Trials of a run as for `find_folder`, of all run folders in a folder, or one
    Trial of a search. Raises UsageError if there are none, SpecError for an unreadable
    spec; with `notes`, one of many in a folder is left out, and noted there."""
    folder = next(
        (each for each in (Path(target), data_dir / target) if os.path.isdir(each)),
        None,
    )
    if folder is not None and RunDir.at(folder) is None:
        found = []
        for run in runs_in(folder):
            try:
                found += [trial_of(run, trial) for trial in run.trials]
            except SpecError as error:
                if notes is None:
                    raise
                notes.append(f"left out: {run.root.name}: {error.problems[0]}")
        if not found:
            raise UsageError(
                f"{folder} is no run folder, and contains none: a run folder has "
                "{spec_name}_spec.json and {spec_name}_t0_spec.json, as slm-lab run "
                "makes them"
            )
        return found
    run_dir, number = find_folder(target, data_dir)
    found = [
        trial_of(run_dir, each) for each in run_dir.trials if number in (None, each)
    ]
    if not found:
        numbers = ", ".join(f"t{each}" for each in run_dir.trials)
        why = f"the run has the trials {numbers}" if numbers else "is no run"
        raise UsageError(f"{target}: {why}")
    return found


def trial_of(run_dir: RunDir, number: int) -> FoundTrial:
    """A Trial of a run. Raises SpecError if its spec is missing or unreadable."""
    file = run_dir.trial_spec_file(number)
    name, spec = recorded_spec(file)
    env, recorded = (spec.get(key) for key in ("env", "meta"))
    if not (
        isinstance(recorded, Mapping) and isinstance(env, Mapping) and "name" in env
    ):
        raise SpecError(str(file), [Problem(name, "must have blocks env and meta")])
    try:
        meta = MetaSpec.model_validate(
            {key: value for key, value in recorded.items() if key in _NEEDED}
        )
    except ValidationError as error:
        problems = [
            Problem(".".join(["meta", *map(str, each["loc"])]), each["msg"])
            for each in error.errors()
        ]
        raise SpecError(str(file), problems) from None
    return FoundTrial(run_dir, number, name, spec, meta, run_dir.is_search)


class ReadTraining(NamedTuple):
    """One seed of a Trial, from the rows of its workers."""

    line: Line
    """The mean of the workers, with x in the unit of its column."""
    final_return: float
    """Mean over the workers."""
    frames: float
    """Of all workers, at the end."""
    seconds: float


class ReadTrial(NamedTuple):
    """A Trial, with its trainings that have values."""

    found: FoundTrial
    trainings: tuple[ReadTraining, ...]

    @property
    def env(self) -> str:
        """The name of its environment."""
        return str(self.found.spec.get("env", {}).get("name", "?"))

    @property
    def final_return(self) -> float:
        """Mean over its trainings of which episodes have ended; −∞ without any."""
        known = [x for each in self.trainings if np.isfinite(x := each.final_return)]
        return float(np.mean(known)) if known else -np.inf

    def scaled(self, zero: float, unit: float) -> "ReadTrial":
        """The Trial with values less `zero`, in units of `unit`."""
        trainings = [
            each._replace(
                line=Line(each.line.x, (each.line.y - zero) / unit),
                final_return=(each.final_return - zero) / unit,
            )
            for each in self.trainings
        ]
        return self._replace(trainings=tuple(trainings))


def read_trial(
    found: FoundTrial, x: str, y: Axis, read: ReadRows = read_saved_rows
) -> ReadTrial:
    """The trainings with values so far. Raises UsageError for a damaged file."""
    trainings = []
    for sessions in found.meta.trainings:
        rows = [
            read(paths, paths.eval_rows if y.file == EVAL_RETURNS.file else paths.rows)
            for session, paths in found.paths.items()
            if session in sessions
        ]
        lines = [line(each, x_axis(x, 0.0), y) for each in rows]
        (mean,) = mean_lines(lines, [0] * len(lines)) or (
            Line(np.empty(0), np.empty(0)),
        )
        if mean.x.size:
            finals, frames, seconds = (
                [float(each[column][-1]) for each in rows if len(each)]
                for column in ("final_return", "total_frame", "wall_t")
            )
            known = [each for each in finals if np.isfinite(each)]
            ends = float(np.mean(known)) if known else np.nan, max(frames), max(seconds)
            trainings.append(ReadTraining(mean, *ends))
    return ReadTrial(found, tuple(trainings))
