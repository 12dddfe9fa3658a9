"""A test of A against B: one more seed of each until the answer is known."""

from dataclasses import replace
from pathlib import Path
from typing import final

from typing_extensions import override

from slm_lab.core.errors import UsageError
from slm_lab.metrics.trial_state import Params, TrialState
from slm_lab.records.run_source import RunSource
from slm_lab.spec.load import warnings_held
from slm_lab.studies.ab.plan import check_enough
from slm_lab.studies.ab.results import AbResults
from slm_lab.studies.compare.folder import CompareFolder, params_of, read_plan
from slm_lab.studies.compare.plan import Plan, StoppingRule
from slm_lab.studies.pool import Pool, Request, request_of, resources_for
from slm_lab.studies.run import Run
from slm_lab.studies.study import Agenda, Study
from slm_lab.studies.trial import TrialTask


@final
class AbRun(Agenda):
    """A test that is run, or resumed, in its folder.

    A pair begins only once no outcome of the pairs before it could show which is
    better. So such an answer makes no running training needless, and it does not depend
    on how many run at once."""

    def __init__(self, folder: CompareFolder, pool: Pool) -> None:
        """Raises UsageError when another process works in the folder, or if the log is
        damaged."""
        super().__init__()
        self.plan = folder.plan
        self.planned = folder.trainings
        self.num_trials = len(self.planned)
        self.results = AbResults(folder, self.study_state)
        self.pool = pool
        self._folder = folder
        self._lock = folder.lock()
        self.study = Study(self, pool, folder.open_log())
        folder.check_folders(self.study_state)
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
        plan = read_plan(folder, imports)
        if plan.rule is None:
            raise UsageError(
                f"{folder} is a comparison: slm-lab compare --resume {folder}"
            )
        if seeds is not None:
            plan = _extended(plan, plan.rule, seeds)
        run = cls(CompareFolder(folder, plan), pool_for(plan, jobs))
        if seeds is not None:
            run._folder.keep_seeds()
        return run

    @property
    def folder(self) -> Path:
        """The folder of the test."""
        return self._folder.path

    @override
    def propose(self, trial: int) -> Params | None:
        results = self.results
        ahead = trial // len(self.plan.specs) - results.settled
        if results.has_ended or ahead >= results.verdict.further:
            return None
        return params_of(self.planned[trial])

    @override
    def label(self, trial: int) -> str:
        return self.planned[trial].label

    def budget(self, trial: int) -> int:
        """The frames of a training."""
        return self.planned[trial].spec.env.max_frame

    @override
    def request(self, state: TrialState) -> Request:
        spec = self.planned[state.trial].spec
        cores = self.pool.resources.cpus
        return request_of(spec, spec.meta.search_resources, cores)

    @override
    def task(self, state: TrialState) -> TrialTask:
        planned = self.planned[state.trial]
        run = Run(self._source(planned.spec.name, planned.seed, state))
        # the process of the training takes the lock
        run.release()
        return run.task

    @override
    def conclude(self, state: TrialState) -> None:
        self.results.write()

    def _source(self, spec_name: str, seed: int, state: TrialState) -> RunSource:
        """The spec of a training, or its run folder if it has begun."""
        source = RunSource(
            spec_file=str(self.plan.file(self.folder)),
            spec_name=spec_name,
            seed=seed,
            data_dir=self.folder,
            imports=self.plan.imports,
        )
        begun = self._folder.run_dir(state)
        if begun is None or not begun.spec_file.is_file():
            return source
        return replace(
            source, spec_file=str(begun.spec_file), run=str(begun.root), seed=None
        )


def pool_for(plan: Plan, jobs: int | None) -> Pool:
    """A process for each training, on at most `jobs` cores; None: on all."""
    return Pool(resources_for(plan.specs.values(), jobs))


def _extended(plan: Plan, rule: StoppingRule, seeds: int) -> Plan:
    """The plan with more seeds. Raises UsageError if it has as many already."""
    before = len(plan.seeds)
    if seeds < before:
        raise UsageError(
            f"--seeds {seeds}: {before} were allowed; a resume may only allow more"
        )
    check_enough(seeds, rule)
    first = plan.seeds[0]
    return plan._replace(seeds=tuple(range(first, first + seeds)))
