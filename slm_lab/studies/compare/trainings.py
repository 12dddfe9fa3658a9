"""The trainings of a plan, as what every kind of comparison proposes to its study."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from slm_lab.metrics.trial_state import Params, TrialState
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import command_text, modules_of
from slm_lab.studies.compare.folder import CompareFolder, params_of
from slm_lab.studies.compare.plan import Plan, Planned
from slm_lab.studies.pool import Pool, Request, Slots, request_of, resources_for
from slm_lab.studies.run import PreparedRun
from slm_lab.studies.study import Agenda, Study
from slm_lab.studies.trial import TrialTask


def pool_for(plan: Plan, jobs: int | None) -> Pool:
    """A process for each training, on at most `jobs` cores; None: on all."""
    return Pool(resources_for(plan.specs.values(), jobs))


class PlannedTrainings(Agenda):
    """A plan's trainings in their folder, which is locked meanwhile."""

    study: Study

    def __init__(self, folder: CompareFolder, slots: Slots) -> None:
        """Raises UsageError when another process works in the folder."""
        super().__init__()
        self.plan = folder.plan
        self.planned = folder.trainings
        self.num_trials = len(self.planned)
        self.compare_folder = folder
        self._slots = slots
        self._lock = folder.lock()

    def open_study(self) -> None:
        """Makes the study, which replays the log: the agenda must be complete. Raises
        UsageError if the log is damaged."""
        self.study = Study(self, self._slots, self.compare_folder.open_log())
        self.compare_folder.check_folders(self.study_state)

    @property
    def folder(self) -> Path:
        """The folder of the plan and its runs."""
        return self.compare_folder.path

    @property
    def resume_words(self) -> list[str]:
        """The words of the command that resumes it."""
        return self.plan.kind.resume_words(self.folder, self.plan.terms)

    def command(self, words: Sequence[str]) -> str:
        """The command with these words, which imports the modules of its specs."""
        modules = [*self.plan.imports, *modules_of(self.plan.baseline)]
        return command_text(words, modules)

    def document(self, results: Mapping[str, Any], code: int) -> dict[str, Any]:
        """The `results` with folder, graphs and the exit code of a command, as JSON has
        them."""
        return {
            "folder": str(self.folder),
            "exit_code": code,
            **results,
            "graphs": list(map(str, self.compare_folder.record.graphs)),
        }

    def new_source(self, planned: Planned) -> RunSource:
        """What a training that has not begun trains."""
        return RunSource(
            spec_file=str(self.plan.file(self.folder)),
            spec_name=planned.spec.name,
            seed=planned.seed,
            data_dir=self.folder,
            imports=self.plan.imports,
        )

    @override
    def propose(self, trial: int) -> Params | None:
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
        cores = self._slots.resources.cpus
        return request_of(spec, spec.meta.search_resources, cores)

    @override
    def task(self, state: TrialState) -> TrialTask:
        run = PreparedRun(self.source(state))
        # the process of the training takes the lock
        run.release()
        return run.task

    def source(self, state: TrialState) -> RunSource:
        """What a training trains: its run folder if it has begun."""
        begun = self.compare_folder.run_dir(state)
        if begun is None or not begun.spec_file.is_file():
            return self.new_source(self.planned[state.trial])
        return RunSource(
            spec_file=str(begun.spec_file),
            run=str(begun.root),
            data_dir=self.folder,
            imports=self.plan.imports,
        )
