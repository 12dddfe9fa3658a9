"""A comparison of modes of parallel training: its plan, its trainings one after the
other, and what they have shown so far.

The plan has one spec for each variant, and the seeds. The variants differ only in
`meta.distributed`, `meta.max_session` and values derived from these."""

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

from slm_lab.charts.comparison import draw_comparison, write_tables
from slm_lab.charts.speeds import (
    BASELINE,
    Comparison,
    Outcome,
    Training,
    Variant,
    training_of,
    window_of,
)
from slm_lab.core.errors import (
    LabError,
    MissingRunError,
    Problem,
    SpecError,
    UsageError,
    undone_on_failure,
)
from slm_lab.core.files import write_json
from slm_lab.core.process import usable_cores
from slm_lab.metrics.reader import read_existing
from slm_lab.records.lock import RunLock
from slm_lab.records.origin import check_format, processor, provenance
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import (
    check_allowed,
    check_cluster_allowed,
    named_by,
    recorded_imports,
)
from slm_lab.session.seeding import draw_root_seed
from slm_lab.spec.checks.nets import GLOBAL_TWIN
from slm_lab.spec.load import load_specs, warnings_held
from slm_lab.spec.modes import MODES, mode_of
from slm_lab.spec.override import Setting, apply_settings
from slm_lab.spec.parse import Parsed, parse
from slm_lab.spec.read import read_file
from slm_lab.spec.schema.agent import optimizer_paths
from slm_lab.spec.schema.messages import not_among
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.manifest import FORMAT
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import (
    PLAN_BLOCK,
    PLAN_FILE,
    RunDir,
    fresh_folder,
    safe_name,
)
from slm_lab.studies.baseline import RANDOM_RETURNS_FILE
from slm_lab.studies.run import Run, check_machine, check_spaces

logger = logging.getLogger(__name__)

BUSY = 0.5
"""The load of other processes, in cores, from which on a note reports it."""


class CompareRequest(NamedTuple):
    """The options of the user's command; None: a default for this machine."""

    source: RunSource
    """The spec; `seed` is the first one."""
    modes: tuple[str, ...] | None
    workers: tuple[int, ...] | None
    seeds: int
    threshold: float | None = None


class Plan(NamedTuple):
    """The variants of a comparison and their machine; the baseline's spec comes
    first."""

    name: str
    specs: Mapping[Variant, Spec]
    seeds: tuple[int, ...]
    threshold: float | None
    cores: int
    processor: str
    imports: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def baseline(self) -> Spec:
        """The spec of the variant with one process."""
        return next(iter(self.specs.values()))

    def file(self, folder: Path) -> Path:
        """The plan file in the folder of the comparison."""
        return folder / PLAN_FILE.format(safe_name(self.name))

    def to_json(self) -> dict[str, Any]:
        """The content of the plan file: every variant's spec, and the plan's own
        block."""
        about = {
            "format": FORMAT,
            "name": self.name,
            "variants": [
                {"spec": spec.name, "mode": variant.mode, "workers": variant.workers}
                for variant, spec in self.specs.items()
            ],
            "seeds": list(self.seeds),
            "threshold": self.threshold,
            "usable_cores": self.cores,
            "imports": list(self.imports),
            "notes": list(self.notes),
            **provenance(self.seeds[0]),
        }
        return {
            **{spec.name: spec.to_json() for spec in self.specs.values()},
            PLAN_BLOCK: about,
        }


def _variant(mode: str, workers: int, cores: int) -> Variant:
    has_learner = mode != BASELINE and mode_of(mode).has_learner
    return Variant(mode, workers, workers > cores, has_learner)


def make_plan(request: CompareRequest) -> Plan:
    """The plan for a request. Raises UsageError, or SpecError with every problem of any
    variant."""
    cores = usable_cores()
    workers = request.workers
    if workers is None:  # 1, 2, 4, … up to the number of cores
        workers = tuple(1 << power for power in range(cores.bit_length()))
    for mode in request.modes or ():
        if mode == BASELINE:
            message = "this is the baseline and always included; leave it out"
            raise UsageError(f"--modes false: {message}")
        if mode not in MODES.names():
            raise UsageError(f"--modes {mode}: {not_among(mode, MODES.names())}")
    alone = {"meta.distributed": False, "meta.max_session": 1, "meta.max_run": 1}
    base = request.source.load(alone)
    named = set(MODES.names() if request.modes is None else request.modes)
    optimizers = dict[str, str]()
    replaced = list[str]()
    if any(mode_of(word).lock_free for word in named):
        for path, optim in optimizer_paths(base.agent.net, base.agent.critic_net):
            twin = GLOBAL_TWIN.get(optim.name)
            if twin is not None:
                optimizers[path] = twin
                change = f"{path}: {optim.name} replaced by {twin} in all variants"
                replaced.append(f"{change}, because modes without a lock need it")
    modes = request.modes
    left_out = list[str]()
    if modes is None:
        modes, left_out = _possible_modes(base, workers, optimizers)
    where = request.source.where(base)
    if base.meta.cluster is not None:
        message = (
            "a comparison measures this machine; leave it out with -s meta.cluster=null"
        )
        raise SpecError(where, [Problem("meta.cluster", message, base.meta.cluster)])
    parallel = (_variant(mode, count, cores) for mode in modes for count in workers)
    variants = [Variant(BASELINE, 1), *parallel]
    specs = _specs(where, base, variants, optimizers)
    check_spaces(where, base)
    check_machine(where, base)
    seed = base.meta.random_seed
    if request.source.seed is not None:
        seed = request.source.seed
    first = seed
    if first is None:
        first = draw_root_seed()
    seeds = range(first, first + request.seeds)
    notes = (*replaced, *left_out)
    load = os.getloadavg()[0]
    if load >= BUSY:
        busy = f"about {load:.1f} of the {cores} cores when the comparison began"
        notes = (*notes, f"other processes used {busy}")
    return Plan(
        name=base.name,
        specs=specs,
        seeds=tuple(seeds),
        threshold=request.threshold,
        cores=cores,
        processor=processor(),
        imports=request.source.imports,
        notes=notes,
    )


def read_plan(
    folder: Path, imports: tuple[str, ...] = (), to_resume: bool = True
) -> Plan:
    """The plan in the folder of a comparison. Its plug-ins must be imported. Raises
    SpecError. Raises UsageError without a plan of this format. `to_resume` raises it
    also if the comparison was begun on another machine, because speeds are not
    comparable, and warns of suspicious keys.
    """
    file, about = _plan_block(folder)
    check_format(folder, about.get("format"))
    specs = load_specs(file, warn=to_resume)
    for spec in specs.values() if to_resume else ():
        check_cluster_allowed(folder, spec, ())
    cores = int(about["usable_cores"])
    named = str(about["machine"]["processor"])
    here = (usable_cores(), processor())
    if to_resume and here != (cores, named):
        raise UsageError(
            f"{folder} was begun on {cores} cores of {named}, this machine has "
            f"{here[0]} of {here[1]}: a comparison can only be resumed on the same "
            "machine; begin a new one"
        )
    by_variant = {
        _variant(entry["mode"], entry["workers"], cores): specs[entry["spec"]]
        for entry in about["variants"]
    }
    return Plan(
        name=about["name"],
        specs=by_variant,
        seeds=tuple(about["seeds"]),
        threshold=about["threshold"],
        cores=cores,
        processor=named,
        imports=imports,
        notes=tuple(about["notes"]),
    )


def allowed_imports(folder: Path, given: Sequence[str], trust: bool) -> tuple[str, ...]:
    """The modules that a comparison was begun with, and `given`; with `trust` all that
    it names. Raises UsageError for a module that the user has not allowed;
    SpecError."""
    file, _ = _plan_block(folder)
    named = named_by([file], PLAN_BLOCK)
    allowed = (*given, *named) if trust else tuple(given)
    check_allowed(folder, named, allowed)
    return tuple(
        dict.fromkeys([*recorded_imports(file, read_file(file), PLAN_BLOCK), *allowed])
    )


def _plan_block(folder: Path) -> tuple[Path, dict[str, Any]]:
    if not folder.is_dir():
        raise MissingRunError(f"there is no folder {folder}")
    files = sorted(folder.glob(PLAN_FILE.format("*")))
    about = None
    if len(files) == 1:
        about = read_file(files[0]).get(PLAN_BLOCK)
    if not isinstance(about, dict):
        lacks = f"it has no {PLAN_FILE.format('*')}"
        raise UsageError(f"{folder} is not the folder of a comparison: {lacks}")
    return files[0], about


def _specs(
    where: str, base: Spec, variants: Sequence[Variant], optimizers: Mapping[str, str]
) -> dict[Variant, Spec]:
    """A spec for each variant. Raises SpecError with the problems of all. Warns of
    suspicious keys of the other variants. Those of the baseline were reported at
    loading."""
    parsed = {variant: _parsed(base, variant, optimizers) for variant in variants}
    problems = {
        str(problem): problem for each in parsed.values() for problem in each.problems
    }
    if problems:
        raise SpecError(where, list(problems.values()))
    reported: set[str] = set()
    for variant, each in parsed.items():
        suspicious = [
            suspicion for suspicion in each.suspicious if suspicion not in reported
        ]
        if suspicious and variant.mode != BASELINE:
            logger.warning(
                "%s: suspicious setting: %s", variant.label, "; ".join(suspicious)
            )
        reported.update(suspicious)
    return {
        variant: each.spec for variant, each in parsed.items() if each.spec is not None
    }


def _parsed(base: Spec, variant: Variant, optimizers: Mapping[str, str]) -> Parsed:
    settings = [Setting(f"{path}.name", name) for path, name in optimizers.items()]
    name = f"{base.name}_{variant.mode}"
    if variant.mode != BASELINE:
        name = f"{name}_{variant.workers}"
        settings.append(Setting("meta.distributed", variant.mode))
        settings.append(Setting("meta.max_session", variant.workers))
        if base.logs_by_default:
            # the default of its share
            settings.append(Setting("meta.log_frequency", None))
    data, found = apply_settings(base.to_json(), settings, dict)
    parsed = parse(name, data).for_training()
    return parsed._replace(problems=[*found, *parsed.problems])


def _possible_modes(
    base: Spec, workers: Sequence[int], optimizers: Mapping[str, str]
) -> tuple[tuple[str, ...], list[str]]:
    """The parallel modes that suit the spec, and a note on why each other mode does
    not."""
    possible = []
    notes = []
    for mode in MODES.names():
        variants = [Variant(mode, count) for count in workers]
        problems = [
            p for each in variants for p in _parsed(base, each, optimizers).problems
        ]
        if problems:
            notes.append(f"{mode} is left out: {problems[0]}")
        else:
            possible.append(mode)
    return tuple(possible), notes


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
        plan = make_plan(request)
        data_dir = request.source.data_dir
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
        begun = None
        if entry is not None:
            begun = RunDir(self.folder / entry.folder, planned.spec.name)
        try:
            name = planned.spec.name
            imports = self.plan.imports
            data_dir = self.folder
            if begun is not None and begun.spec_file.is_file():
                file = str(begun.spec_file)
                run_name = str(begun.root)
                source = RunSource(
                    file, name, run_name, data_dir=data_dir, imports=imports
                )
            else:
                file = str(self.plan.file(self.folder))
                source = RunSource(
                    spec_file=file,
                    spec_name=name,
                    run=None,
                    sets=(),
                    seed=planned.seed,
                    data_dir=data_dir,
                    imports=imports,
                )
            run = Run(source)
        except LabError as error:
            folder = ""
            if entry is not None:
                folder = entry.folder
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
        spec = self.plan.baseline
        plan = self.plan
        whole = len(self.planned)
        left = len(self.to_run)
        unfinished = (
            [f"{whole - left} of {whole} trainings have finished"] if left else []
        )
        return Comparison(
            title=f"{spec.agent.algorithm.name} on {spec.env.name}",
            outcomes=tuple(self._outcome(variant) for variant in plan.specs),
            max_frame=spec.env.max_frame,
            seeds=len(plan.seeds),
            cores=plan.cores,
            processor=plan.processor,
            threshold=plan.threshold,
            window=self._window,
            notes=(*plan.notes, *unfinished),
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
        most = max(each.workers for each in self.plan.specs)
        spec = self.plan.baseline
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
            actors = 1
            if planned.variant.has_learner:
                actors = planned.variant.workers
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
