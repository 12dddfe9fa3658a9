"""The folder of a comparison of any kind, `data/{plan}_{kind}_{time}`: the plan (a spec
file with every variant), the log of how trainings ended, all run folders, graphs and
tables."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, final

from slm_lab.charts.speeds import Way
from slm_lab.core.errors import (
    Problem,
    UsageError,
    undone_on_failure,
)
from slm_lab.core.files import write_json
from slm_lab.core.process import usable_cores
from slm_lab.metrics.trial_state import Params, Status, TrialState
from slm_lab.records.comparison import (
    COMPARISON_LOG,
    PLAN_BLOCK,
    PLAN_FILE,
    ComparisonKind,
    ComparisonRecord,
    UnknownKind,
)
from slm_lab.records.event_log import (
    Began,
    Ended,
    Event,
    EventLog,
    Interrupted,
    Proposed,
    StudyState,
)
from slm_lab.records.lock import RunLock
from slm_lab.records.origin import check_format, processor
from slm_lab.records.trust import (
    check_allowed,
    check_cluster_allowed,
    named_by,
    recorded_imports,
)
from slm_lab.records.validated import UnreadableFileError, damaged, validated
from slm_lab.spec.load import load_specs
from slm_lab.spec.read import read_file
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import RunDir, fresh_folder, safe_name
from slm_lab.studies.baseline import RANDOM_RETURNS_FILE
from slm_lab.studies.compare.plan import Plan, Planned, RecordedPlan

FIX = "put back the file, or begin a new comparison"
"""What to do about a damaged plan."""


def read_plan(
    folder: Path,
    kind: ComparisonKind,
    imports: tuple[str, ...] = (),
    terms: type[Any] = dict,
    to_resume: bool = True,
) -> Plan:
    """The plan of this `kind` in the folder of a comparison. Its plug-ins must be
    imported. `terms` is the type of what only plans of the kind say.

    Raises SpecError. Raises UsageError without a plan of this kind and format. Raises
    UnreadableFileError for a damaged plan, or one of a kind of a later version.
    `to_resume` warns of suspicious keys. It raises UsageError also for speeds that
    another machine has measured.
    """
    comparison = ComparisonRecord.required(folder)
    file = comparison.plan_file
    block = comparison.block
    _check_kind(comparison, kind)
    check_format(folder, block.get("format"))
    recorded = validated(
        kind=RecordedPlan,
        content=json.dumps(block),
        file=file,
        fix=FIX,
        place=PLAN_BLOCK,
    )
    if kind.terms_key:
        place = f"{PLAN_BLOCK}.{kind.terms_key}"
        validated(
            kind=terms,
            content=json.dumps(kind.terms_of(block)),
            file=file,
            fix=FIX,
            place=place,
        )
    specs = load_specs(file, warn=to_resume)
    if to_resume:
        for spec in specs.values():
            check_cluster_allowed(folder, spec, ())
        if kind.measures_speed:
            cores = recorded.usable_cores
            _check_machine_is(folder, cores, recorded.machine.processor)
    plan = Plan(
        kind=kind,
        name=recorded.name,
        specs=_specs_by_label(file, recorded, specs),
        seeds=recorded.seeds,
        threshold=recorded.threshold,
        cores=recorded.usable_cores,
        processor=recorded.machine.processor,
        imports=imports,
        notes=recorded.notes,
        terms=kind.terms_of(block),
    )
    if plan.file(folder) != file:
        message = f"must be the name in {PLAN_FILE.format('NAME')}"
        raise damaged(file, Problem(f"{PLAN_BLOCK}.name", message, plan.name), FIX)
    return plan


def _check_kind(comparison: ComparisonRecord, kind: ComparisonKind) -> None:
    """Raises UsageError, which names the right command, if a comparison is of another
    kind; UnreadableFileError for a kind of a later version."""
    folder = str(comparison.folder)
    directions = comparison.kind.directions.replace("{folder}", folder)
    if isinstance(comparison.kind, UnknownKind):
        raise UnreadableFileError(f"{folder} is {directions}")
    if comparison.kind is not kind:
        raise UsageError(f"{folder} is {directions}")


def _specs_by_label(
    file: Path, recorded: RecordedPlan, specs: Mapping[str, Spec]
) -> dict[str, Spec]:
    """The spec of each variant by its label. Raises UsageError if the plan file lacks
    it."""
    by_label = {}
    for number, variant in enumerate(recorded.variants):
        spec = specs.get(variant.spec)
        if spec is None:
            place = f"{PLAN_BLOCK}.variants.{number}.spec"
            message = "must be the name of a spec in the file"
            raise damaged(file, Problem(place, message, variant.spec), FIX)
        label = variant.label
        if label is None:
            label = Way.of(spec, recorded.usable_cores).label
        by_label[label] = spec
    return by_label


def _check_machine_is(folder: Path, cores: int, processor_name: str) -> None:
    """Raises UsageError on another machine than this."""
    cores_here = usable_cores()
    processor_here = processor()
    if (cores_here, processor_here) != (cores, processor_name):
        raise UsageError(
            f"{folder} was begun on {cores} cores of {processor_name}, this machine "
            f"has {cores_here} of {processor_here}: a comparison can only be resumed "
            "on the same machine; begin a new one"
        )


def allowed_imports(
    folder: Path, imports: Sequence[str], trust: bool
) -> tuple[str, ...]:
    """The modules that a comparison was begun with, and `imports`; with `trust` all
    that it names. Raises UsageError for a module that the user has not allowed;
    SpecError."""
    comparison = ComparisonRecord.required(folder)
    file = comparison.plan_file
    named = named_by([file], PLAN_BLOCK)
    allowed = tuple(imports)
    if trust:
        allowed = (*imports, *named)
    check_allowed(folder, named, allowed)
    recorded = recorded_imports(file, comparison.content, PLAN_BLOCK)
    return tuple(dict.fromkeys([*recorded, *allowed]))


def params_of(planned: Planned) -> Params:
    """What the log says of a training when it is proposed."""
    return {"spec": planned.spec.name, "seed": planned.seed}


@final
class CompareFolder:
    """The folder of a comparison with this plan."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.trainings = plan.trainings
        self.stem = safe_name(plan.name)
        """How the names of its files begin."""
        self._log_file = path / COMPARISON_LOG.format(self.stem)

    @classmethod
    def create(cls, data_dir: Path, plan: Plan) -> "CompareFolder":
        """A new folder with the plan, and the known returns of random agents."""
        stem = f"{safe_name(plan.name)}_{plan.kind.word}"
        path = fresh_folder(data_dir, stem, datetime.now())
        with undone_on_failure(lambda: shutil.rmtree(path)):
            write_json(plan.file(path), plan.to_json())
            random_returns = data_dir / RANDOM_RETURNS_FILE
            if random_returns.is_file():
                shutil.copyfile(random_returns, path / RANDOM_RETURNS_FILE)
        return cls(path, plan)

    @property
    def record(self) -> ComparisonRecord:
        """The comparison as it is on disk."""
        return ComparisonRecord(self.plan.file(self.path))

    def keep_seeds(self) -> None:
        """Writes the plan's seeds into its file, which may have fewer. Raises
        OSError."""
        file = self.plan.file(self.path)
        content = read_file(file)
        content[PLAN_BLOCK]["seeds"] = list(self.plan.seeds)
        write_json(file, content)

    def lock(self) -> RunLock:
        """A lock, as long as it is referred to. Raises UsageError when another process
        works in the folder."""
        return RunLock(self.path)

    def open_log(self) -> EventLog:
        """The log to write to, with the events that an earlier version recorded. The
        folder must be locked. Raises UsageError if the log is damaged."""
        log = EventLog(self._log_file)
        if not self._log_file.is_file():
            for event in self._earlier_events():
                log.write(event)
        return log

    def check_folders(self, study_state: StudyState) -> None:
        """Raises UsageError unless all folders that the log names lie in this one."""
        for state in study_state.trials.values():
            name = state.folder or "none"
            if Path(name).name != name or name == "..":
                raise UsageError(
                    f"{self._log_file}: {name!r} must be the name of a folder beside it"
                )

    def run_dir(self, state: TrialState) -> RunDir | None:
        """The run folder of a training; None before it began."""
        if state.folder is None:
            return None
        root = self.path / state.folder
        # a fork has the name of its parent's spec, not of the plan's
        return RunDir.at(root) or RunDir(root, self.trainings[state.trial].spec.name)

    def _earlier_events(self) -> Iterator[Event]:
        """The events in the record of an earlier version, a JSON file. Raises
        UsageError if it is damaged."""
        file = self.path / f"{self.stem}_compare_record.json"
        if not file.is_file():
            return
        by_key = {
            f"{planned.spec.name} seed {planned.seed}": planned
            for planned in self.trainings
        }
        try:
            for key, entry in json.loads(file.read_text()).items():
                yield from _events_of_entry(by_key[key], entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{file} is damaged: {error}") from error


def _events_of_entry(planned: Planned, entry: dict[str, Any]) -> Iterator[Event]:
    """The events that an entry in the record of an earlier version stands for."""
    trial = planned.number
    yield Proposed(trial, params_of(planned))
    yield Began(trial, entry["folder"] or None)
    if entry["ending"] not in (Ending.FINISHED, Ending.FAILED):
        yield Interrupted(trial, 0.0)
        return
    yield Ended(
        trial=trial,
        status=Status(entry["ending"]),
        frame=0,
        score=None,
        seconds=0.0,
        metrics={},
        error=entry["error"],
        would_repeat=entry["would_repeat"],
    )
