"""Trains the variants of a comparison one after the other, and draws the results so
far."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, final

from slm_lab.charts.comparison import draw_comparison, write_tables
from slm_lab.charts.speeds import (
    Comparison,
    Outcome,
    Training,
    Variant,
    training_of,
    window_of,
)
from slm_lab.core.errors import LabError, UsageError, undone_on_failure
from slm_lab.core.files import write_json
from slm_lab.experiment.baseline import RANDOM_RETURNS_FILE
from slm_lab.experiment.compare.plan import CompareRequest, Plan, make_plan, read_plan
from slm_lab.experiment.run import Run
from slm_lab.experiment.run_source import RunSource
from slm_lab.metrics.reader import read_existing
from slm_lab.spec.load import warnings_held
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.lock import RunLock
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import RunDir, fresh_folder, safe_name


class Planned(NamedTuple):
    """One training of a comparison."""

    variant: Variant
    spec: Spec
    seed: int

    @property
    def key(self) -> str:
        """Its key in the comparison's record."""
        return f"{self.spec.name} seed {self.seed}"

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.variant.label}, seed {self.seed}"


class TrainingRecord(NamedTuple):
    """The record of a training that was begun: its run folder, and how it ended."""

    folder: str
    ending: Ending | None = None
    """None while it trains, or if it was killed."""
    error: str | None = None
    would_repeat: bool = False
    """Whether a restart would fail in the same way."""


@final
class CompareRun:
    """A comparison in its folder `data/{spec_name}_compare_{time}`: all run folders,
    the plan (a spec file with every variant), the record of how trainings ended, graphs
    and tables."""

    def __init__(self, folder: Path, plan: Plan, is_reader: bool = False) -> None:
        """Raises UsageError when another process works in the folder. One that
        `is_reader` takes no lock, and trains and writes nothing."""
        self.folder = folder
        self.plan = plan
        self._lock = None if is_reader else RunLock(folder)
        self._record_file = folder / f"{safe_name(plan.name)}_compare_record.json"
        self._record = _read_record(self._record_file)
        self._read: dict[str, Training] = {}

    @classmethod
    @warnings_held()
    def begin(cls, request: CompareRequest) -> "CompareRun":
        """Begins a new comparison. Raises SpecError or UsageError with every problem
        before anything runs."""
        plan, data_dir = make_plan(request), request.source.data_dir
        folder = fresh_folder(
            data_dir, f"{safe_name(plan.name)}_compare", datetime.now()
        )
        with undone_on_failure(lambda: shutil.rmtree(folder)):
            run = cls(folder, plan)
        write_json(plan.file(run.folder), plan.to_json())
        known = data_dir / RANDOM_RETURNS_FILE
        if known.is_file():
            shutil.copyfile(known, run.folder / RANDOM_RETURNS_FILE)
        return run

    @classmethod
    @warnings_held()
    def resume(cls, folder: Path, imports: tuple[str, ...] = ()) -> "CompareRun":
        """Resumes a comparison with the plug-ins `imports`. Raises UsageError,
        SpecError."""
        return cls(folder, read_plan(folder, imports))

    @classmethod
    def look(cls, folder: Path) -> "CompareRun":
        """A reader of a comparison, maybe of another machine. Raises UsageError,
        SpecError."""
        return cls(folder, read_plan(folder, to_resume=False), is_reader=True)

    @cached_property
    def planned(self) -> list[Planned]:
        """Every training in order: all variants with one seed, then all with the next
        seed. So a temporary disturbance of the machine affects all variants."""
        return [
            Planned(variant, spec, seed)
            for seed in self.plan.seeds
            for variant, spec in self.plan.specs.items()
        ]

    @property
    def to_run(self) -> list[Planned]:
        """The trainings not yet finished, failed ones included."""
        return [each for each in self.planned if not self._has_finished(each)]

    @property
    def failures(self) -> Iterator[tuple[Planned, str]]:
        """The trainings that failed, and why."""
        for each in self.planned:
            entry = self._record.get(each.key)
            if entry is not None and entry.ending is Ending.FAILED:
                yield each, entry.error or "unknown reason"

    @property
    def would_repeat(self) -> bool:
        """Whether all trainings left to run have failed and would fail in the same way
        again."""
        left = [self._record.get(each.key) for each in self.to_run]
        return all(entry is not None and entry.would_repeat for entry in left)

    def prepare(self, planned: Planned) -> Run | None:
        """The new or resumed run of a training; None if it cannot begin, which is
        recorded."""
        entry = self._record.get(planned.key)
        begun = (
            None
            if entry is None
            else RunDir(self.folder / entry.folder, planned.spec.name)
        )
        try:
            name, imports, data_dir = planned.spec.name, self.plan.imports, self.folder
            if begun is not None and begun.spec_file.is_file():
                file, run_name = str(begun.spec_file), str(begun.root)
                source = RunSource(
                    file, name, run_name, data_dir=data_dir, imports=imports
                )
            else:
                file = str(self.plan.file(self.folder))
                source = RunSource(
                    file, name, None, (), planned.seed, data_dir, imports
                )
            run = Run(source)
        except LabError as error:
            folder = "" if entry is None else entry.folder
            self._note(planned, TrainingRecord(folder, Ending.FAILED, str(error)))
            return None
        self._note(planned, TrainingRecord(run.run_dir.root.name))
        return run

    def train(self, planned: Planned, run: Run, on_tick: Callable[..., None]) -> Ending:
        """Trains to the end, and records how it ended."""
        folder = run.run_dir.root.name
        try:
            result = run.start(on_tick)
            entry = TrainingRecord(
                folder, Ending.INTERRUPTED if result.interrupted else Ending.FINISHED
            )
            if result.failed:
                again = any(session.would_repeat for session in result.failed)
                entry = TrainingRecord(
                    folder, Ending.FAILED, result.failed[0].error, again
                )
        except LabError as error:
            entry = TrainingRecord(folder, Ending.FAILED, str(error))
        self._note(planned, entry)
        return entry.ending or Ending.FAILED

    def comparison(self) -> Comparison:
        """What has been measured so far."""
        spec, plan = self.plan.baseline, self.plan
        whole, left = len(self.planned), len(self.to_run)
        unfinished = (
            [f"{whole - left} of {whole} trainings have finished"] if left else []
        )
        return Comparison(
            f"{spec.agent.algorithm.name} on {spec.env.name}",
            tuple(self._outcome(variant) for variant in plan.specs),
            spec.env.max_frame,
            len(plan.seeds),
            plan.cores,
            plan.processor,
            plan.threshold,
            self._window,
            (*plan.notes, *unfinished),
        )

    def draw(self) -> list[Path]:
        """Graphs and tables of what has been measured so far; the dashboard's PNG comes
        first."""
        tables = self.write_tables()
        name = safe_name(self.plan.name)
        return [*draw_comparison(self.comparison(), self.folder, name), *tables]

    def write_tables(self) -> list[Path]:
        """The tables of what has been measured so far."""
        return write_tables(self.comparison(), self.folder, safe_name(self.plan.name))

    @property
    def _window(self) -> float:
        most, spec = max(each.workers for each in self.plan.specs), self.plan.baseline
        return window_of(spec.env.max_frame, spec.log_frequency, most)

    def _outcome(self, variant: Variant) -> Outcome:
        of_variant = [each for each in self.planned if each.variant == variant]
        failures = {
            each.seed: why for each, why in self.failures if each.variant == variant
        }
        finished = [each for each in of_variant if self._has_finished(each)]
        return Outcome(
            variant, {each.seed: self._training(each) for each in finished}, failures
        )

    def _training(self, planned: Planned) -> Training:
        """Reads a finished training once, because it does not change."""
        if planned.key not in self._read:
            run_dir = RunDir(
                self.folder / self._record[planned.key].folder, planned.spec.name
            )
            sessions = range(planned.spec.meta.num_sessions)
            rows = read_existing(
                {each: run_dir.session(0, each).rows for each in sessions}
            )
            actors = planned.variant.workers if planned.variant.has_learner else 1
            self._read[planned.key] = training_of(
                list(rows.values()), self._window, actors
            )
        return self._read[planned.key]

    def _has_finished(self, planned: Planned) -> bool:
        entry = self._record.get(planned.key)
        return entry is not None and entry.ending is Ending.FINISHED

    def _note(self, planned: Planned, entry: TrainingRecord) -> None:
        self._record[planned.key] = entry
        content = {key: each._asdict() for key, each in self._record.items()}
        write_json(self._record_file, content)


def _read_record(file: Path) -> dict[str, TrainingRecord]:
    if not file.is_file():
        return {}
    try:
        record = {
            key: TrainingRecord(
                **{**each, "ending": each["ending"] and Ending(each["ending"])}
            )
            for key, each in json.loads(file.read_text()).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} is damaged: {error}") from error
    for entry in record.values():
        if Path(entry.folder).name != entry.folder or entry.folder == "..":
            raise UsageError(
                f"{file}: {entry.folder!r} must be the name of a folder beside it"
            )
    return record
