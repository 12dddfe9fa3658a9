"""A comparison: the trainings of its plan, one after the other in this process. What
it has shown so far, its graphs and tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from slm_lab.charts.comparison import draw_comparison, write_tables
from slm_lab.charts.speeds import (
    ComparedTrainings,
    Training,
    VariantResult,
    Way,
    summary_table,
    text_table,
    training_of,
    trainings_table,
    window_of,
)
from slm_lab.core.errors import UsageError
from slm_lab.core.text import TextTable
from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.records.comparison import COMPARE
from slm_lab.records.event_log import StudyState
from slm_lab.records.run_record import RunRecord
from slm_lab.spec.load import warnings_held
from slm_lab.storage.result import TrialResult
from slm_lab.studies.compare.folder import CompareFolder, read_plan
from slm_lab.studies.compare.plan import Plan, Planned
from slm_lab.studies.compare.trainings import PlannedTrainings
from slm_lab.studies.pool import Request, SerialSlot, TrialEnd, trial_end
from slm_lab.studies.run import PreparedRun
from slm_lab.studies.trial import TrialTask


@final
class CompareResults:
    """The results of the trainings in a folder, as far as `study_state` has them."""

    def __init__(self, folder: CompareFolder, study_state: StudyState) -> None:
        self._folder = folder
        self._plan = folder.plan
        self._study_state = study_state
        self._ways = folder.plan.ways
        self._trainings: dict[int, Training] = {}
        """The finished trainings that have been read; they do not change."""
        self.damaged: dict[int, str] = {}
        """Why the rows of a finished training cannot be read any more, by its number.
        What has been measured leaves them out."""

    def comparison(self) -> ComparedTrainings:
        """What has been measured so far."""
        plan = self._plan
        spec = plan.baseline
        return ComparedTrainings(
            title=f"{spec.agent.algorithm.name} on {spec.env.name}",
            outcomes=tuple(
                self._outcome(variant, way) for variant, way in self._ways.items()
            ),
            max_frame=spec.env.max_frame,
            seeds=len(plan.seeds),
            cores=plan.cores,
            processor=plan.processor,
            threshold=plan.threshold,
            window=self._window,
            notes=(*plan.notes, *self._unfinished_notes()),
        )

    def draw(self) -> list[Path]:
        """Graphs and tables of what has been measured so far; the dashboard's PNG comes
        first."""
        tables = self.write_tables()
        graphs = draw_comparison(
            self.comparison(), self._folder.path, self._folder.stem
        )
        return [*graphs, *tables]

    def write_tables(self) -> list[Path]:
        """The tables of what has been measured so far."""
        return write_tables(self.comparison(), self._folder.path, self._folder.stem)

    def text_table(self) -> TextTable:
        """A row for each variant."""
        return text_table(summary_table(self.comparison()))

    def document(self) -> dict[str, Any]:
        """The rows of both tables, as JSON has them."""
        comparison = self.comparison()
        return {
            "variants": summary_table(comparison).to_dict("records"),
            "trainings": trainings_table(comparison).to_dict("records"),
        }

    @property
    def _window(self) -> float:
        most_workers = max(way.workers for way in self._ways.values())
        spec = self._plan.baseline
        return window_of(spec.env.max_frame, spec.log_frequency, most_workers)

    def _unfinished_notes(self) -> list[str]:
        planned = len(self._folder.trainings)
        finished = len(self._study_state.of(Status.FINISHED))
        if finished == planned:
            return []
        return [f"{finished} of {planned} trainings have finished"]

    def _outcome(self, variant: str, way: Way) -> VariantResult:
        trainings = {}
        failures = dict[int, str]()
        for state in self._study_state.trials.values():
            planned = self._folder.trainings[state.trial]
            if planned.variant != variant:
                continue
            if state.status is Status.FINISHED:
                try:
                    trainings[planned.seed] = self._training(planned, way)
                except UsageError as error:
                    self.damaged[planned.number] = str(error)
                    failures[planned.seed] = str(error)
            if state.status is Status.FAILED:
                failures[planned.seed] = str(state.error)
        return VariantResult(way, trainings, failures)

    def _training(self, planned: Planned, way: Way) -> Training:
        """Reads a finished training once."""
        if planned.number not in self._trainings:
            run_dir = self._folder.run_dir(self._study_state.trials[planned.number])
            assert run_dir is not None
            record = RunRecord(run_dir)
            rows = [record.rows(session) for session in record.sessions]
            actors = 1
            if way.has_learner:
                actors = way.workers
            self._trainings[planned.number] = training_of(rows, self._window, actors)
        return self._trainings[planned.number]


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
