"""A live table on a terminal, of Sessions or of trials; elsewhere lines of a log."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from slm_lab.cli.display.screen import Screen, print_line
from slm_lab.core.process import stop_on_signals
from slm_lab.core.text import error_summary
from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.records.event_log import StudyState

if TYPE_CHECKING:
    from slm_lab.records.progress import SearchProgress
    from slm_lab.studies.study import Study

GAP = 2
"""Blank columns between two columns of a table."""
REFRESH = 0.5
"""Seconds between two updates of the table of a study."""
STOPPING = "saving, then stopping; Ctrl-C again ends at once"


class TableColumn(NamedTuple):
    """A column of a live table."""

    head: str
    width: int = 0
    """The minimum, so that columns do not move as numbers grow."""
    most: int | None = None
    """The maximum; a narrow terminal has less."""
    justify: JustifyMethod = "right"


class LiveTable(ABC):
    """A live table inside its `with` block. Without a terminal there is none, only the
    lines that are printed meanwhile."""

    BAR_WIDTH: ClassVar[int]
    """Characters of a progress bar."""
    ROOM_FOR_BAR: ClassVar[int]
    """The minimum width of a terminal for bars, in columns; a narrower one shows only
    numbers."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._screen = Screen(console)
        self.is_live = self._screen.is_live
        """Whether the output is a terminal, or a notebook."""

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._screen.show(self._picture())
        self._screen.__exit__(*error)

    @abstractmethod
    def _picture(self) -> RenderableType:
        """The table, and what is always below it."""

    def _show(self, *notes: Text) -> None:
        """Replaces the picture, with notes below it."""
        self._screen.show(Group(self._picture(), *notes))

    def _grid(self, columns: Sequence[TableColumn]) -> Table:
        """A table with its header."""
        table = Table.grid(padding=(0, GAP))
        for column in columns:
            table.add_column(
                no_wrap=column.most is None,
                justify=column.justify,
                min_width=column.width or None,
                max_width=column.most,
            )
        table.add_row(*(Text(column.head, "dim") for column in columns))
        return table

    def _bars(self) -> list[TableColumn]:
        """The column of progress bars, if there is room for it."""
        if not self._has_bars:
            return []
        return [TableColumn("", most=self.BAR_WIDTH, justify="left")]

    def _bar(self, frames: int, total: int) -> list[RenderableType]:
        """The cell of a progress bar, if there is room for it."""
        if not self._has_bars:
            return []
        return [ProgressBar(total, min(frames, total))]

    @property
    def _has_bars(self) -> bool:
        return self._console.width >= self.ROOM_FOR_BAR


class TrialStage(NamedTuple):
    """The part of a trial's state whose change makes a line."""

    status: Status
    restarts: int
    copies: int

    @classmethod
    def of(cls, state: TrialState) -> Self:
        """The stage of a trial in this state."""
        return cls(state.status, state.restarts, state.copies)


class StudyTable(LiveTable):
    """Shows the trials of a study inside its `with` block, and prints a line for those
    that change. `update` must be called a few times a second."""

    TOLD: ClassVar[Collection[Status]]
    """The states of which a line tells even beside the live table."""

    def __init__(self, console: Console, study: "Study | SearchProgress") -> None:
        super().__init__(console)
        self._study = study
        # what a resumed study did before has been printed then
        self._logged = {
            trial: TrialStage.of(state) for trial, state in self._state.trials.items()
        }
        for state in self._state.of(Status.RUNNING):  # when the study was killed
            waiting = TrialStage.of(state)._replace(status=Status.WAITING)
            self._logged[state.trial] = waiting
        self._logged_stopping = False
        self._next = 0.0

    @property
    def _state(self) -> StudyState:
        return self._study.study_state

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
        is_stopping = self._study.stopping and self._state.of(Status.RUNNING)
        self._show(Text(STOPPING if is_stopping else "", "yellow"))

    @abstractmethod
    def _name(self, trial: int) -> str:
        """The name of a trial in a line."""

    @abstractmethod
    def _change(self, state: TrialState, before: TrialStage | None) -> str:
        """What a line says after the name of a trial that has begun, paused or
        ended."""

    def _log(self) -> None:
        if self._study.stopping and not self._logged_stopping and not self.is_live:
            self._logged_stopping = True
            print_line(self._console, STOPPING)
        for trial, state in self._state.trials.items():
            stage = TrialStage.of(state)
            before = self._logged.get(trial)
            is_retried = before is not None and state.restarts > before.restarts
            if stage == before or (state.status is Status.WAITING and not is_retried):
                continue
            self._logged[trial] = stage
            if is_retried:
                text = f" restarts: {error_summary(state.last_failure)}"
            elif state.status is Status.FAILED:
                text = f" failed: {error_summary(state.error)}"
            else:
                text = self._change(state, before)
            if not self.is_live or is_retried or state.status in self.TOLD:
                print_line(self._console, f"{self._name(trial)}{text}")


def run_shown(
    study: "Study", display: StudyTable, on_tick: Callable[[], None] = lambda: None
) -> None:
    """Runs a study below its live table, and calls `on_tick` after each update of it.
    The first signal makes the trainings save and end."""

    def update() -> None:
        display.update()
        on_tick()

    with stop_on_signals(study.stop), display:
        study.run(update)
