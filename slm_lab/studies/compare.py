"""A comparison of modes of parallel training: its plan, its trainings one after the
other, and what they have shown so far.

The plan has one spec for each variant, and the seeds. The variants differ only in
`meta.distributed`, `meta.max_session` and values derived from these."""

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, final

from typing_extensions import override

from slm_lab.charts.comparison import draw_comparison, write_tables
from slm_lab.charts.speeds import (
    BASELINE,
    Comparison,
    Training,
    Variant,
    VariantResult,
    training_of,
    window_of,
)
from slm_lab.core.errors import (
    MissingRunError,
    Problem,
    SpecError,
    UsageError,
    undone_on_failure,
)
from slm_lab.core.files import write_json
from slm_lab.core.process import usable_cores
from slm_lab.metrics.reader import read_existing
from slm_lab.metrics.trial_state import Params, Status, TrialState
from slm_lab.records.event_log import (
    Began,
    Ended,
    Event,
    EventLog,
    Interrupted,
    Proposed,
)
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
from slm_lab.storage.result import Ending, TrialResult
from slm_lab.storage.run_dir import (
    COMPARISON_LOG,
    PLAN_BLOCK,
    PLAN_FILE,
    RunDir,
    fresh_folder,
    safe_name,
)
from slm_lab.studies.baseline import RANDOM_RETURNS_FILE
from slm_lab.studies.pool import SerialSlot, TrialEnd, end_of
from slm_lab.studies.run import Run, check_machine, check_spaces
from slm_lab.studies.study import Agenda, Study
from slm_lab.studies.trial import TrialTask

logger = logging.getLogger(__name__)

ALONE = {"meta.distributed": False, "meta.max_session": 1, "meta.max_run": 1}
"""What makes the baseline of any spec."""
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


def make_plan(request: CompareRequest) -> Plan:
    """The plan for a request. Raises UsageError, or SpecError with every problem of any
    variant."""
    cores = usable_cores()
    source = request.source
    modes = _modes(request)
    _check_workers(request)
    base = source.load(ALONE)
    optimizers = {}
    if any(mode_of(mode).lock_free for mode in modes):
        optimizers = _global_twins(base)
    notes = [
        f"{path}: {old} replaced by {new} in all variants, because modes without a "
        "lock need it"
        for path, (old, new) in optimizers.items()
    ]
    where = source.where(base)
    workers = request.workers
    if workers is None:  # 1, 2, 4, … up to the number of cores
        workers = tuple(1 << power for power in range(cores.bit_length()))
    twins = {path: new for path, (_, new) in optimizers.items()}
    variants = [_variant(mode, count, cores) for mode in modes for count in workers]
    parsed = {
        variant: _parsed(base, variant, twins)
        for variant in (Variant(BASELINE, 1), *variants)
    }
    if request.modes is None:
        for variant in variants:
            if variant in parsed and parsed[variant].problems:
                why = parsed[variant].problems[0]
                notes.append(f"{variant.mode} is left out: {why}")
                parsed = {v: p for v, p in parsed.items() if v.mode != variant.mode}
    if base.meta.cluster is not None:
        message = (
            "a comparison measures this machine; leave it out with -s meta.cluster=null"
        )
        raise SpecError(where, [Problem("meta.cluster", message, base.meta.cluster)])
    specs = _specs(where, parsed)
    check_spaces(where, base)
    check_machine(where, base)
    first = base.meta.random_seed
    if source.seed is not None:
        first = source.seed
    if first is None:
        first = draw_root_seed()
    load = os.getloadavg()[0]
    if load >= BUSY:
        busy = f"about {load:.1f} of the {cores} cores when the comparison began"
        notes.append(f"other processes used {busy}")
    return Plan(
        name=base.name,
        specs=specs,
        seeds=tuple(range(first, first + request.seeds)),
        threshold=request.threshold,
        cores=cores,
        processor=processor(),
        imports=source.imports,
        notes=tuple(notes),
    )


def _modes(request: CompareRequest) -> Sequence[str]:
    """The modes to compare; by default all. Raises UsageError."""
    if request.modes == ():
        raise UsageError("--modes: names no mode; leave it out for all of them")
    for mode in request.modes or ():
        if mode == BASELINE:
            message = "this is the baseline and always included; leave it out"
            raise UsageError(f"--modes false: {message}")
        if mode not in MODES.names():
            raise UsageError(f"--modes {mode}: {not_among(mode, MODES.names())}")
    if request.modes is None:
        return MODES.names()
    return request.modes


def _check_workers(request: CompareRequest) -> None:
    """Raises UsageError unless there are numbers of workers, all of them whole and at
    least 1."""
    for count in request.workers or ():
        if count < 1:
            raise UsageError(f"--workers {count}: must be whole numbers >= 1")
    if request.workers == ():
        raise UsageError(
            "--workers: names no number; leave it out for 1, 2, 4, … up to the cores"
        )


def _global_twins(base: Spec) -> dict[str, tuple[str, str]]:
    """The names of optimizers and of their twins that need no lock, by path."""
    optimizers = [
        whole.stepping(path)
        for path, whole in optimizer_paths(base.agent.net, base.agent.critic_net)
    ]
    return {
        path: (optim.name, GLOBAL_TWIN[optim.name])
        for path, optim in optimizers
        if optim.name in GLOBAL_TWIN
    }


def _variant(mode: str, workers: int, cores: int) -> Variant:
    has_learner = mode != BASELINE and mode_of(mode).has_learner
    return Variant(mode, workers, workers > cores, has_learner)


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
    data, problems = apply_settings(base.to_json(), settings, dict)
    parsed = parse(name, data).for_training()
    return parsed._replace(problems=[*problems, *parsed.problems])


def _specs(where: str, parsed: Mapping[Variant, Parsed]) -> dict[Variant, Spec]:
    """The specs of the variants. Raises SpecError with the problems of all. Warns once
    of each suspicious key, but those of the baseline were reported at loading."""
    problems = {str(p): p for variant in parsed.values() for p in variant.problems}
    if problems:
        raise SpecError(where, list(problems.values()))
    specs = {}
    reported: set[str] = set()
    for variant, content in parsed.items():
        suspicious = [text for text in content.suspicious if text not in reported]
        if suspicious and variant.mode != BASELINE:
            logger.warning(
                "%s: suspicious setting: %s", variant.label, "; ".join(suspicious)
            )
        reported.update(suspicious)
        assert content.spec is not None
        specs[variant] = content.spec
    return specs


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


class Planned(NamedTuple):
    """One training of a comparison."""

    number: int
    variant: Variant
    spec: Spec
    seed: int

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.variant.label}, seed {self.seed}"


@final
class CompareRun(Agenda):
    """A comparison in its folder `data/{spec_name}_compare_{time}`: all run folders,
    the plan (a spec file with every variant), the log of how trainings ended, graphs
    and tables."""

    redoes_failed = True

    def __init__(self, folder: Path, plan: Plan, is_reader: bool = False) -> None:
        """Raises UsageError when another process works in the folder, or if the log is
        damaged. One that `is_reader` takes no lock, and trains and writes nothing."""
        super().__init__()
        self.folder = folder
        self.plan = plan
        self.planned = [
            Planned(number, variant, spec, seed)
            for number, (seed, (variant, spec)) in enumerate(
                product(plan.seeds, plan.specs.items())
            )
        ]
        """Every training in order: all variants with one seed, then all with the next
        seed. So a temporary disturbance of the machine affects all variants."""
        self.num_trials = len(self.planned)
        self._read: dict[int, Training] = {}
        self._runs: dict[int, Run] = {}
        self._stem = safe_name(plan.name)
        file = folder / COMPARISON_LOG.format(self._stem)
        log = EventLog(file)
        earlier: Iterable[Event] = ()
        if not file.is_file():
            earlier = self._earlier_events()
        if is_reader:
            for event in (*earlier, *log.read()):
                self.study_state.apply(event)
        else:
            self._lock = RunLock(folder)
            for event in earlier:
                log.write(event)
            self.study = Study(self, SerialSlot(self._train), log)
        for state in self.study_state.trials.values():
            name = state.folder or "none"
            if Path(name).name != name or name == "..":
                raise UsageError(
                    f"{file}: {name!r} must be the name of a folder beside it"
                )

    @classmethod
    @warnings_held()
    def begin(cls, request: CompareRequest) -> "CompareRun":
        """Begins a new comparison. Raises SpecError or UsageError with every problem
        before anything runs."""
        plan = make_plan(request)
        data_dir = request.source.data_dir
        stem = f"{safe_name(plan.name)}_compare"
        folder = fresh_folder(data_dir, stem, datetime.now())
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

    @property
    def to_run(self) -> list[Planned]:
        """The trainings not yet finished, failed ones included."""
        finished = {state.trial for state in self.study_state.of(Status.FINISHED)}
        return [planned for planned in self.planned if planned.number not in finished]

    @property
    def failures(self) -> list[tuple[Planned, str]]:
        """The trainings that failed, and why."""
        return [
            (self.planned[state.trial], str(state.error))
            for state in self.study_state.of(Status.FAILED)
        ]

    @property
    def would_repeat(self) -> bool:
        """Whether all trainings left to run have failed and would fail in the same way
        again."""
        failed = self.study_state.of(Status.FAILED)
        hopeless = {state.trial for state in failed if state.would_repeat}
        return all(planned.number in hopeless for planned in self.to_run)

    def run(
        self,
        opens: Callable[[Planned], None] = lambda planned: None,
        trains: Callable[[Planned, Run], TrialResult] = lambda planned, run: run.start(
            lambda board: None
        ),
    ) -> None:
        """Runs what is left to run. Calls `opens` before each training, and `trains` to
        run it and to show its progress. Raises KeyboardInterrupt if the user stops
        it."""
        self._opens = opens
        self._trains = trains
        self.study.run()

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
            outcomes=tuple(self._result(variant) for variant in plan.specs),
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
        return [*draw_comparison(self.comparison(), self.folder, self._stem), *tables]

    def write_tables(self) -> list[Path]:
        """The tables of what has been measured so far."""
        return write_tables(self.comparison(), self.folder, self._stem)

    @override
    def propose(self, trial: int) -> Params:
        planned = self.planned[trial]
        return {"spec": planned.spec.name, "seed": planned.seed}

    @override
    def label(self, trial: int) -> str:
        return self.planned[trial].label

    @override
    def task(self, state: TrialState) -> TrialTask:
        planned = self.planned[state.trial]
        self._opens(planned)
        source = RunSource(
            spec_file=str(self.plan.file(self.folder)),
            spec_name=planned.spec.name,
            seed=planned.seed,
            data_dir=self.folder,
            imports=self.plan.imports,
        )
        begun = self._run_dir(state)
        if begun is not None and begun.spec_file.is_file():
            source = replace(
                source, spec_file=str(begun.spec_file), run=str(begun.root), seed=None
            )
        run = Run(source)
        self._runs[state.trial] = run
        return run.task

    @override
    def conclude(self, state: TrialState) -> None:
        self.draw()

    def _train(self, trial: int, task: TrialTask) -> TrialEnd:
        result = self._trains(self.planned[trial], self._runs.pop(trial))
        if result.interrupted and not result.failed:
            raise KeyboardInterrupt
        return end_of(result)

    @property
    def _window(self) -> float:
        most = max(variant.workers for variant in self.plan.specs)
        spec = self.plan.baseline
        return window_of(spec.env.max_frame, spec.log_frequency, most)

    def _result(self, variant: Variant) -> VariantResult:
        trainings = {}
        failures = dict[int, str]()
        for state in self.study_state.trials.values():
            planned = self.planned[state.trial]
            if planned.variant != variant:
                continue
            if state.status is Status.FINISHED:
                trainings[planned.seed] = self._training(planned)
            if state.status is Status.FAILED:
                failures[planned.seed] = str(state.error)
        return VariantResult(variant, trainings, failures)

    def _training(self, planned: Planned) -> Training:
        """Reads a finished training once, because it does not change."""
        if planned.number not in self._read:
            run_dir = self._run_dir(self.study_state.trials[planned.number])
            assert run_dir is not None
            files = {
                session: run_dir.session(0, session).rows
                for session in range(planned.spec.meta.num_sessions)
            }
            rows = list(read_existing(files).values())
            actors = 1
            if planned.variant.has_learner:
                actors = planned.variant.workers
            self._read[planned.number] = training_of(rows, self._window, actors)
        return self._read[planned.number]

    def _run_dir(self, state: TrialState) -> RunDir | None:
        if state.folder is None:
            return None
        return RunDir(self.folder / state.folder, self.planned[state.trial].spec.name)

    def _earlier_events(self) -> Iterator[Event]:
        """The events in the record of an earlier version, a JSON file. Raises
        UsageError if it is damaged."""
        file = self.folder / f"{self._stem}_compare_record.json"
        if not file.is_file():
            return
        numbers = {
            f"{planned.spec.name} seed {planned.seed}": planned.number
            for planned in self.planned
        }
        try:
            for key, entry in json.loads(file.read_text()).items():
                trial = numbers[key]
                yield Proposed(trial, self.propose(trial))
                yield Began(trial, entry["folder"] or None)
                if entry["ending"] not in (Ending.FINISHED, Ending.FAILED):
                    yield Interrupted(trial, 0.0)
                    continue
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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{file} is damaged: {error}") from error
