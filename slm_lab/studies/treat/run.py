"""A treatment: a short fork of a run for each remedy of the doctor's findings."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.doctor.finding import Finding
from slm_lab.metrics.trial_state import TrialState
from slm_lab.records.run_source import RunSource
from slm_lab.records.validated import UnreadableFileError
from slm_lab.storage.run_dir import safe_name
from slm_lab.studies.compare.folder import CompareFolder, read_plan
from slm_lab.studies.compare.plan import Plan, Planned
from slm_lab.studies.compare.trainings import PlannedTrainings, pool_for
from slm_lab.studies.pool import Pool
from slm_lab.studies.treat.plan import Treatment, source_of
from slm_lab.studies.treat.results import TreatResults
from slm_lab.studies.trial import TrialTask


@final
class TreatRun(PlannedTrainings):
    """A treatment that is run, or resumed, in its folder."""

    def __init__(self, folder: CompareFolder, pool: Pool) -> None:
        """Raises UsageError as `PlannedTrainings`, and if the log is damaged."""
        super().__init__(folder, pool)
        self.pool = pool
        self.treatment = Treatment.of(folder.plan)
        self.results = TreatResults(folder, self.study_state)
        self.open_study()

    @classmethod
    def open(cls, plan: Plan, data_dir: Path, jobs: int | None) -> "TreatRun":
        """Begins the treatment, on at most `jobs` cores; None: on all. One of the same
        plan in `data_dir` is resumed. Raises UsageError beside a plan that cannot be
        read."""
        pool = pool_for(plan, jobs)
        known = _folder_of(plan, data_dir)
        if known is not None:
            return cls(CompareFolder(known, plan), pool)
        run = cls(CompareFolder.create(data_dir, plan), pool)
        run.results.write()
        return run

    @override
    def label(self, trial: int) -> str:
        return self.planned[trial].variant

    @override
    def budget(self, trial: int) -> int:
        return self.treatment.remedies[trial].until

    @override
    def new_source(self, planned: Planned) -> RunSource:
        return source_of(self.plan, planned.number, self.folder)

    @override
    def task(self, state: TrialState) -> TrialTask:
        until = self.treatment.remedies[state.trial].until
        return replace(super().task(state), until=until)

    @override
    def conclude(self, state: TrialState) -> None:
        self.results.write()


def treat_document(
    findings: Sequence[Finding], run: TreatRun | None, code: int
) -> dict[str, Any]:
    """The findings about a run, and what their remedies have shown in `run`, with the
    exit code of a command, as JSON has them."""
    treatment = None
    if run is not None:
        treatment = {"folder": str(run.folder), **run.results.document()}
    return {
        "findings": [finding.document() for finding in findings],
        "treatment": treatment,
        "exit_code": code,
    }


def _folder_of(plan: Plan, data_dir: Path) -> Path | None:
    """The newest folder of a treatment of the same plan; None if there is none.
    Raises UsageError for a folder whose plan this version cannot read."""
    folders = data_dir.glob(f"{safe_name(plan.name)}_{plan.kind.word}_*")
    for folder in sorted(folders, reverse=True):
        try:
            known = read_plan(
                folder=folder,
                kind=plan.kind,
                imports=plan.imports,
                terms=Treatment,
                to_resume=False,
            )
        except UnreadableFileError:
            raise  # it may be this treatment: a new one would repeat its trainings
        except LabError:
            continue
        has_same_specs = [spec.to_json() for spec in known.specs.values()] == [
            spec.to_json() for spec in plan.specs.values()
        ]
        if has_same_specs and Treatment.of(known) == Treatment.of(plan):
            return folder
    return None
