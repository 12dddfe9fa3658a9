"""The live table of a study's trainings; without a terminal, lines of a log."""

from collections.abc import Callable
from typing import Protocol, final

from rich.console import Console, RenderableType
from typing_extensions import override

from slm_lab.cli.display.live import StudyTable, TableColumn, TrialStage
from slm_lab.core.text import duration_text, short_count, significant
from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.studies.pool import Pool
from slm_lab.studies.study import Study


class TrainingsRun(Protocol):
    """What the table shows."""

    study: Study
    pool: Pool

    def label(self, trial: int) -> str:
        """The name of a training."""

    def budget(self, trial: int) -> int:
        """The frames of a training."""


@final
class TrainingsTable(StudyTable):
    """Shows the trainings of a study that run. Lines tell how others ended."""

    BAR_WIDTH = 24
    ROOM_FOR_BAR = 90
    TOLD = frozenset(Status) - {Status.RUNNING}

    def __init__(
        self,
        console: Console,
        run: TrainingsRun,
        return_of: Callable[[int], float | None] | None = None,
    ) -> None:
        """`return_of` is the recent return of a running training; None: not shown."""
        super().__init__(console, run.study)
        self._run = run
        self._return_of = return_of

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

    @override
    def _name(self, trial: int) -> str:
        return f"[{trial + 1}/{self._study.num_trials}] {self._run.label(trial)}"

    @override
    def _change(self, state: TrialState, before: TrialStage | None) -> str:
        if state.status is Status.RUNNING:
            return " begins"
        return (
            f": {significant(state.score)} after {short_count(state.frame)} frames, "
            f"{duration_text(state.seconds)}"
        )
