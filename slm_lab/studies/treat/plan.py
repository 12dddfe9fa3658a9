"""The plan of a treatment: which remedies are tried, from which frame, for how long."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pydantic import TypeAdapter

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.process import usable_cores
from slm_lab.core.text import error_summary
from slm_lab.doctor.finding import Finding
from slm_lab.doctor.history import FEWEST_FRAMES, reached_frames, read_histories
from slm_lab.records.comparison import TREAT
from slm_lab.records.origin import processor
from slm_lab.records.run_record import RunRecord
from slm_lab.records.run_source import RunSource
from slm_lab.spec.load import warnings_held
from slm_lab.spec.schema.spec import Spec
from slm_lab.studies.compare.plan import Plan
from slm_lab.studies.fork import Fork, check_loads, plan_fork

Settings: TypeAlias = tuple[str, ...]
"""Changes of a spec, as `-s` takes them."""

MOST_FINDINGS = 3
"""The most findings that are treated, the most serious first."""
SHARE = 0.5
"""The share of the run's frames that a remedy is tried for, unless the user says."""


class TreatRequest(NamedTuple):
    """The options of the user's command; None: a default."""

    source: RunSource
    """`fork` is the folder of the run, `data_dir` the folder for the treatment."""
    frames: int | None = None
    """The total frames that each remedy is tried for."""
    jobs: int | None = None
    """The most cores to use; None: all."""


class TriedRemedy(NamedTuple):
    """One remedy of a treatment."""

    findings: tuple[str, ...]
    """The findings that it may cure."""
    settings: tuple[str, ...]
    """Its changes as `-s` takes them."""
    frame: int
    """The total frame at which it leaves the run; 0: it begins anew."""
    since: int
    """The total frame until which the run was well."""
    until: int
    """The total frame at which it ends."""


class Treatment(NamedTuple):
    """What a treatment treats."""

    run: str
    """The folder of the run."""
    frames: int
    """The total frames of each remedy, after the beginning of the illness."""
    remedies: tuple[TriedRemedy, ...]
    """The remedies in the order of the plan's variants."""

    @classmethod
    def of(cls, plan: Plan) -> "Treatment":
        """The treatment that a plan has recorded."""
        return TypeAdapter(cls).validate_python(plan.terms)

    def to_json(self) -> dict[str, Any]:
        """What a plan records."""
        remedies = [remedy._asdict() for remedy in self.remedies]
        return {**self._asdict(), "remedies": remedies}

    @property
    def record(self) -> RunRecord:
        """The run that is treated. Raises MissingRunError if it is gone."""
        return RunRecord.required(Path(self.run))


@warnings_held()
def make_plan(request: TreatRequest, findings: Sequence[Finding]) -> Plan | None:
    """The plan of a treatment of a run for `findings`; None if none has a remedy.
    Raises UsageError if no remedy can be tried, SpecError."""
    treated = [finding for finding in findings if finding.remedies][:MOST_FINDINGS]
    if not treated:
        return None
    assert request.source.fork is not None
    record = RunRecord.required(Path(request.source.fork))
    if record.is_training:
        raise UsageError(f"{record.folder} still trains; treat it once it has ended")
    frames = request.frames
    if frames is None:
        reached = reached_frames(record, read_histories(record))
        frames = max(int(SHARE * reached), FEWEST_FRAMES)
    forks: dict[Settings, Fork] = {}
    cures_of: dict[Settings, list[Finding]] = {}
    refused: dict[Settings, str] = {}
    for settings, cures in _group_by_settings(treated).items():
        try:
            fork = _fork_before(request.source, record, settings, cures)
        except LabError as error:
            refused[settings] = error_summary(error)
            continue
        # the same change in other words is tried once
        twins = (twin for twin, other in forks.items() if other.spec == fork.spec)
        tried = next(twins, settings)
        forks.setdefault(tried, fork)
        cures_of.setdefault(tried, []).extend(cures)
    if not forks:
        reasons = "; ".join(dict.fromkeys(refused.values()))
        raise UsageError(f"{record.folder} cannot be treated: {reasons}")
    remedies = [
        _tried(settings, fork, cures_of[settings], frames)
        for settings, fork in forks.items()
    ]
    treatment = Treatment(
        run=str(record.folder.resolve()),
        frames=frames,
        remedies=tuple(remedies),
    )
    return Plan(
        kind=TREAT,
        name=record.name,
        specs=dict(_named(forks)),
        seeds=tuple({fork.root_seed for fork in forks.values()}),
        threshold=None,
        cores=usable_cores(),
        processor=processor(),
        imports=request.source.imports,
        notes=tuple(
            f"{' '.join(settings)} cannot be tried: {why}"
            for settings, why in refused.items()
        ),
        terms=treatment.to_json(),
    )


def _tried(
    settings: Settings, fork: Fork, cures: Sequence[Finding], frames: int
) -> TriedRemedy:
    """A remedy that is tried for `frames` after the run was last well."""
    since = max(fork.frame, min(finding.since for finding in cures))
    return TriedRemedy(
        findings=tuple(dict.fromkeys(finding.what for finding in cures)),
        settings=settings,
        frame=fork.frame,
        since=since,
        until=min(since + frames, fork.spec.env.max_frame),
    )


def _group_by_settings(findings: Sequence[Finding]) -> dict[Settings, list[Finding]]:
    """Every remedy once, as `-s` takes it, with the findings that it may cure."""
    cures: dict[Settings, list[Finding]] = {}
    for finding in findings:
        for remedy in finding.remedies:
            cures.setdefault(remedy.settings, []).append(finding)
    return cures


def _fork_before(
    source: RunSource,
    record: RunRecord,
    settings: Settings,
    cures: Sequence[Finding],
) -> Fork:
    """The fork that tries a remedy. It starts from the newest checkpoint before the
    illness. If that state cannot take the remedy, it starts from the run's start.
    Raises LabError if neither can, or if the remedy changes nothing."""
    meta = record.checked_spec().meta
    since = min(finding.since for finding in cures)
    nearest = record.checkpoints.nearest(meta, meta.trainings[0], since).total_frame
    fork = None
    if nearest:
        fork = _fork_of_state(_forked(source, record, nearest, settings))
    if fork is None:
        fork = plan_fork(_forked(source, record, 0, settings))
        check_loads(fork)
    if all(path == "meta.cluster" for path, _ in fork.changes):
        raise UsageError("the run has these values")
    return fork


def _fork_of_state(source: RunSource) -> Fork | None:
    """The fork, if every training has a checkpoint at its frame that it can take
    over."""
    try:
        fork = plan_fork(source)
        check_loads(fork)
    except LabError:
        return None
    if any(start.total_frame != fork.frame for start in fork.starts):
        return None
    return fork


def _named(forks: dict[Settings, Fork]) -> Iterator[tuple[str, Spec]]:
    """The specs by label, under names that differ: all must fit into one file."""
    for number, (settings, fork) in enumerate(forks.items()):
        name = f"{fork.spec.name}_{number}"
        yield " ".join(settings), fork.spec.model_copy(update={"name": name})


def source_of(plan: Plan, number: int, data_dir: Path) -> RunSource:
    """The fork that tries remedy `number` of a plan, with its run folder in
    `data_dir`."""
    treatment = Treatment.of(plan)
    record = treatment.record
    remedy = treatment.remedies[number]
    source = RunSource(
        spec_file=str(record.run_dir.spec_file),
        spec_name=record.run_dir.spec_name,
        fork=str(record.folder),
        data_dir=data_dir,
        imports=plan.imports,
        note=f"tried for: {'; '.join(remedy.findings)}",
    )
    return _forked(source, record, remedy.frame, remedy.settings)


def _forked(
    source: RunSource, record: RunRecord, frame: int, settings: Settings
) -> RunSource:
    """A fork of a run at `frame` with a remedy. It trains on this machine."""
    here = ("meta.cluster=null",) if record.cluster is not None else ()
    return replace(source, frame=frame, sets=(*settings, *here))
