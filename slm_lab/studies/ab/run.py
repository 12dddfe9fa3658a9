"""A test of A against B: one more seed of each until the answer is known."""

from pathlib import Path
from typing import final

from typing_extensions import override

from slm_lab.core.errors import Problem, UsageError
from slm_lab.metrics.trial_state import Params, TrialState
from slm_lab.records.comparison import AB, PLAN_BLOCK
from slm_lab.records.validated import damaged
from slm_lab.spec.load import warnings_held
from slm_lab.studies.ab.plan import LABELS, check_enough, rule_of
from slm_lab.studies.ab.results import AbResults
from slm_lab.studies.ab.verdict import StoppingRule
from slm_lab.studies.compare.folder import FIX, CompareFolder, read_plan
from slm_lab.studies.compare.plan import Plan
from slm_lab.studies.compare.trainings import PlannedTrainings, pool_for
from slm_lab.studies.pool import Pool


@final
class AbRun(PlannedTrainings):
    """A test that is run, or resumed, in its folder.

    A pair begins only once no outcome of the pairs before it could show which is
    better. So such an answer makes no running training needless, and it does not depend
    on how many run at once."""

    def __init__(self, folder: CompareFolder, pool: Pool) -> None:
        """Raises UsageError as `PlannedTrainings`, and if the log is damaged."""
        super().__init__(folder, pool)
        self.pool = pool
        self.results = AbResults(folder, self.study_state)
        self.open_study()
        self.redoes_failed = self.results.verdict.answer is None

    @classmethod
    def begin(cls, plan: Plan, data_dir: Path, jobs: int | None = None) -> "AbRun":
        """Begins a new test in a new folder, on at most `jobs` cores; None: on all."""
        pool = pool_for(plan, jobs)
        run = cls(CompareFolder.create(data_dir, plan), pool)
        run.results.write()
        return run

    @classmethod
    @warnings_held()
    def resume(
        cls,
        folder: Path,
        imports: tuple[str, ...] = (),
        seeds: int | None = None,
        jobs: int | None = None,
    ) -> "AbRun":
        """Resumes a test with the plug-ins `imports`. It may now use `seeds` of each;
        None: as many as before. Raises UsageError, SpecError."""
        plan = read_plan(folder, AB, imports, StoppingRule)
        if tuple(plan.specs) != LABELS:
            place = f"{PLAN_BLOCK}.variants"
            problem = Problem(place, "must be labelled A and B", list(plan.specs))
            raise damaged(plan.file(folder), problem, FIX)
        if seeds is not None:
            plan = _extended(plan, seeds)
        run = cls(CompareFolder(folder, plan), pool_for(plan, jobs))
        if seeds is not None:
            run.compare_folder.keep_seeds()
        return run

    @override
    def propose(self, trial: int) -> Params | None:
        results = self.results
        ahead = trial // len(self.plan.specs) - results.settled
        if results.has_ended or ahead >= results.verdict.further:
            return None
        return super().propose(trial)

    @override
    def conclude(self, state: TrialState) -> None:
        self.results.write()


def _extended(plan: Plan, seeds: int) -> Plan:
    """The plan with more seeds. Raises UsageError if it has as many already."""
    before = len(plan.seeds)
    if seeds < before:
        raise UsageError(
            f"--seeds {seeds}: {before} were allowed; a resume may only allow more"
        )
    check_enough(seeds, rule_of(plan))
    first = plan.seeds[0]
    return plan._replace(seeds=tuple(range(first, first + seeds)))
