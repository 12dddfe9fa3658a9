"""The plan of a treatment: which remedies are tried, from which frame, for how long."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from slm_lab.core.errors import LabError, MissingRunError, UsageError
from slm_lab.core.process import usable_cores
from slm_lab.core.text import error_summary
from slm_lab.doctor.finding import Finding
from slm_lab.doctor.history import FEWEST_FRAMES, reached_frames, read_histories
from slm_lab.records.origin import processor
from slm_lab.records.run_record import RunRecord
from slm_lab.records.run_source import RunSource
from slm_lab.spec.load import load_spec, warnings_held
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.compare.plan import Plan, Treatment, TriedRemedy
from slm_lab.studies.fork import Fork, check_loads, nearest_start, plan_fork

MOST_FINDINGS = 3
"""The most findings that are treated, the most serious first."""
SHARE = 0.5
"""The share of the run's frames that a remedy is tried for, unless the user says."""


class TreatRequest(NamedTuple):
    """The options of the user's command; None: a default."""

    source: RunSource
    """`fork` is the folder of the run, `data_dir` that of the treatment."""
    frames: int | None = None
    """The total frames that each remedy is tried for."""
    jobs: int | None = None
    """The most cores to use; None: all."""


@warnings_held()
def make_plan(
    request: TreatRequest, record: RunRecord, findings: Sequence[Finding]
) -> Plan:
    """The plan of a treatment of a run for `findings`. Raises UsageError if no remedy
    can be tried, SpecError."""
    if record.is_training:
        raise UsageError(f"{record.folder} still trains; treat it once it has ended")
    frames = request.frames
    if frames is None:
        reached = reached_frames(record, read_histories(record))
        frames = max(int(SHARE * reached), FEWEST_FRAMES)
    forks: dict[str, Fork] = {}
    remedies: list[TriedRemedy] = []
    refused: list[str] = []
    for settings, cures in _by_settings(findings).items():
        label = " ".join(settings)
        try:
            fork = _fork_before(request.source, record, settings, cures)
        except LabError as error:
            refused.append(f"{label} cannot be tried: {error_summary(str(error))}")
            continue
        forks[label] = fork
        until = min(fork.frame + frames, fork.spec.env.max_frame)
        names = tuple(finding.what for finding in cures)
        remedies.append(TriedRemedy(names, settings, fork.frame, until))
    if not forks:
        raise UsageError(f"{record.folder} cannot be treated: {'; '.join(refused)}")
    return Plan(
        name=record.name,
        specs=dict(_named(forks)),
        seeds=tuple({fork.root_seed for fork in forks.values()}),
        threshold=None,
        cores=usable_cores(),
        processor=processor(),
        imports=request.source.imports,
        notes=tuple(refused),
        treatment=Treatment(str(record.folder), tuple(remedies)),
    )


def _by_settings(findings: Sequence[Finding]) -> dict[tuple[str, ...], list[Finding]]:
    """Every remedy once, as `-s` takes it, with the findings that it may cure."""
    cures: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        for remedy in finding.remedies:
            cures.setdefault(remedy.settings, []).append(finding)
    return cures


def _fork_before(
    source: RunSource,
    record: RunRecord,
    settings: tuple[str, ...],
    cures: Sequence[Finding],
) -> Fork:
    """The fork that tries a remedy: from the newest checkpoint of the time before the
    illness, if that state can take the remedy, else from the start. Raises LabError if
    neither can, or if the remedy changes nothing."""
    spec = load_spec(record.spec_file, record.name, warn=False)
    since = min(finding.since for finding in cures)
    sessions = spec.meta.trainings[0]
    nearest = nearest_start(record.run_dir, spec, sessions, since).total_frame
    fork = None
    if nearest:
        fork = _fork_of_state(_forked(source, record, nearest, settings))
    if fork is None:
        fork = plan_fork(_forked(source, record, 0, settings))
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


def _named(forks: dict[str, Fork]) -> Iterator[tuple[str, Spec]]:
    """The specs by label, under names that differ: all must fit into one file."""
    for number, (label, fork) in enumerate(forks.items()):
        name = f"{fork.spec.name}_{number}"
        yield label, fork.spec.model_copy(update={"name": name})


def source_of(plan: Plan, number: int, data_dir: Path) -> RunSource:
    """The fork that tries remedy `number` of a plan, with its run folder in
    `data_dir`."""
    assert plan.treatment is not None
    record = run_of(plan)
    remedy = plan.treatment.remedies[number]
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
    source: RunSource, record: RunRecord, frame: int, settings: tuple[str, ...]
) -> RunSource:
    """A fork of a run at `frame` with a remedy. It trains on this machine."""
    here = ("meta.cluster=null",) if record.cluster is not None else ()
    return replace(source, frame=frame, sets=(*settings, *here))


def run_of(plan: Plan) -> RunRecord:
    """The run that a plan treats. Raises MissingRunError if it is gone."""
    assert plan.treatment is not None
    folder = Path(plan.treatment.run)
    run_dir = RunDir.at(folder)
    if run_dir is None:
        raise MissingRunError(f"{folder}, which is treated, is gone")
    return RunRecord(run_dir)
