"""The trainings of a plan, each in a process of its own."""

from abc import abstractmethod
from pathlib import Path

from typing_extensions import override

from slm_lab.metrics.trial_state import TrialState
from slm_lab.records.run_source import RunSource
from slm_lab.studies.compare.folder import CompareFolder
from slm_lab.studies.compare.plan import Plan, Planned
from slm_lab.studies.pool import Pool, Request, request_of, resources_for
from slm_lab.studies.run import Run
from slm_lab.studies.study import Agenda, Study
from slm_lab.studies.trial import TrialTask


def pool_for(plan: Plan, jobs: int | None) -> Pool:
    """A process for each training, on at most `jobs` cores; None: on all."""
    return Pool(resources_for(plan.specs.values(), jobs))


class PooledTrainings(Agenda):
    """A plan's trainings in their folder, which is locked meanwhile."""

    study: Study

    def __init__(self, folder: CompareFolder, pool: Pool) -> None:
        """Raises UsageError when another process works in the folder."""
        super().__init__()
        self.plan = folder.plan
        self.planned = folder.trainings
        self.num_trials = len(self.planned)
        self.pool = pool
        self.compare_folder = folder
        self._lock = folder.lock()

    def open_study(self) -> None:
        """Makes the study, which replays the log: the agenda must be complete. Raises
        UsageError if the log is damaged."""
        self.study = Study(self, self.pool, self.compare_folder.open_log())
        self.compare_folder.check_folders(self.study_state)

    @property
    def folder(self) -> Path:
        """The folder of the plan and its runs."""
        return self.compare_folder.path

    @abstractmethod
    def new_source(self, planned: Planned) -> RunSource:
        """What a training that has not begun trains."""

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
        run = Run(self._source(state))
        # the process of the training takes the lock
        run.release()
        return run.task

    def _source(self, state: TrialState) -> RunSource:
        """What a training trains: its run folder if it has begun."""
        begun = self.compare_folder.run_dir(state)
        if begun is None or not begun.spec_file.is_file():
            return self.new_source(self.planned[state.trial])
        return RunSource(
            spec_file=str(begun.spec_file),
            spec_name=begun.spec_name,
            run=str(begun.root),
            data_dir=self.folder,
            imports=self.plan.imports,
        )
