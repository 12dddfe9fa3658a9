"""The live table of a study's trainings; without a terminal, lines of a log."""

import time
from collections.abc import Callable
from typing import Protocol, final

from rich.console import Console, RenderableType
from rich.text import Text
from typing_extensions import override

from slm_lab.cli.display.live import STOPPING, LiveTable, TableColumn
from slm_lab.cli.display.screen import print_line
from slm_lab.core.text import duration_text, error_summary, short_count, significant
from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.records.event_log import StudyState
from slm_lab.studies.pool import Pool
from slm_lab.studies.study import Study


class TrainingsRun(Protocol):
    """What the table shows."""

    study: Study
    study_state: StudyState
    pool: Pool
    num_trials: int

    def label(self, trial: int) -> str:
        """The name of a training."""

    def budget(self, trial: int) -> int:
        """The frames of a training."""


REFRESH = 0.5
"""Seconds between two updates of the table."""


@final
class TrainingsTable(LiveTable):
    """Shows the running trainings inside its `with` block, and prints a line for each
    one that begins or ends. `update` must be called a few times a second."""

    BAR_WIDTH = 24
    ROOM_FOR_BAR = 90

    def __init__(
        self,
        console: Console,
        run: TrainingsRun,
        return_of: Callable[[int], float | None] | None = None,
    ) -> None:
        """`return_of` is the recent return of a running training; None: not shown."""
        super().__init__(console)
        self._run = run
        self._return_of = return_of
        # what a resumed study did before has been printed then
        self._logged = {
            trial: state.status
            for trial, state in run.study_state.trials.items()
            if state.status.is_over
        }
        self._next = 0.0

    @override
    def __exit__(self, *error: object) -> None:
        self._log()
        super().__exit__(*error)

    def update(self) -> None:
        """Shows the current state."""
        self._log()
        now = time.monotonic()
        if not self.is_live or now < self._next:
            return
        self._next = now + REFRESH
        is_stopping = self._run.study.stopping and self._run.pool.running
        self._show(Text(STOPPING if is_stopping else "", "yellow"))

    @override
    def _picture(self) -> RenderableType:
        columns = [
            TableColumn("training", justify="left"),
            *self._bars(),
            TableColumn("frames", 9),
            TableColumn("time", 8),
        ]
        if self._return_of is not None:
            columns.append(TableColumn("return", 7))
        table = self._grid(columns)
        for trial, process in self._run.pool.running.items():
            returns = []
            if self._return_of is not None:
                returns = [significant(self._return_of(trial))]
            table.add_row(
                self._run.label(trial),
                *self._bar(process.frame, self._run.budget(trial)),
                f"{process.frame:,}",
                duration_text(process.seconds),
                *returns,
            )
        return table

    def _log(self) -> None:
        for trial, state in self._run.study_state.trials.items():
            status = state.status
            if status is Status.WAITING or self._logged.get(trial) is status:
                continue
            self._logged[trial] = status
            if status is not Status.RUNNING or not self.is_live:
                print_line(self._console, self._line(trial, state))

    def _line(self, trial: int, state: TrialState) -> str:
        name = f"[{trial + 1}/{self._run.num_trials}] {self._run.label(trial)}"
        if state.status is Status.RUNNING:
            return f"{name} begins"
        if state.status is Status.FAILED:
            return f"{name} failed: {error_summary(str(state.error))}"
        return (
            f"{name}: {significant(state.score)} after {short_count(state.frame)} "
            f"frames, {duration_text(state.seconds)}"
        )
