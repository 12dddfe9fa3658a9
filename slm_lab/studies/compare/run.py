"""A comparison: the trainings of its plan, one after the other in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import final

from typing_extensions import override

from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.records.comparison import COMPARE
from slm_lab.spec.load import warnings_held
from slm_lab.storage.result import TrialResult
from slm_lab.studies.compare.folder import CompareFolder, read_plan
from slm_lab.studies.compare.plan import Plan, Planned
from slm_lab.studies.compare.results import CompareResults
from slm_lab.studies.compare.trainings import PlannedTrainings
from slm_lab.studies.pool import Request, SerialSlot, TrialEnd, trial_end
from slm_lab.studies.run import PreparedRun
from slm_lab.studies.trial import TrialTask


@final
class CompareRun(PlannedTrainings):
    """A comparison that is run, or resumed, in its folder."""

    redoes_failed = True

    def __init__(self, folder: CompareFolder) -> None:
        """Raises UsageError as `PlannedTrainings`, and if the log is damaged."""
        super().__init__(folder, SerialSlot(self._train))
        self.results = CompareResults(folder, self.study_state)
        self._runs: dict[int, PreparedRun] = {}
        self.open_study()

    @classmethod
    def begin(cls, plan: Plan, data_dir: Path) -> "CompareRun":
        """Begins a new comparison in a new folder."""
        return cls(CompareFolder.create(data_dir, plan))

    @classmethod
    @warnings_held()
    def resume(cls, folder: Path, imports: tuple[str, ...] = ()) -> "CompareRun":
        """Resumes a comparison with the plug-ins `imports`. Raises UsageError,
        SpecError."""
        plan = read_plan(folder, COMPARE, imports)
        return cls(CompareFolder(folder, plan))

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
        trains: Callable[[Planned, PreparedRun], TrialResult] = lambda planned, run: (
            run.start(lambda status_board: None)
        ),
    ) -> None:
        """Runs what is left to run. Calls `opens` before each training, and `trains` to
        run it and to show its progress. The user's stop of one stops the study."""
        self._opens = opens
        self._trains = trains
        try:
            self.study.run()
        except KeyboardInterrupt:
            self.study.stop()

    @override
    def request(self, state: TrialState) -> Request:
        return self.smallest_request

    @override
    def task(self, state: TrialState) -> TrialTask:
        self._opens(self.planned[state.trial])
        run = PreparedRun(self.source(state))
        self._runs[state.trial] = run
        return run.task

    @override
    def conclude(self, state: TrialState) -> None:
        self.results.draw()

    def _train(self, trial: int, task: TrialTask) -> TrialEnd:
        result = self._trains(self.planned[trial], self._runs.pop(trial))
        if result.interrupted and not result.failed:
            raise KeyboardInterrupt
        return trial_end(result)
