"""The display of a running search: a live table of trials, or log lines without a
terminal."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from rich.console import Console, Group, JustifyMethod
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slm_lab.charts.search_summary import point_texts, short_names, value_text
from slm_lab.cli.display.live import STOPPING, short
from slm_lab.cli.display.screen import Screen, print_line
from slm_lab.core.text import error_summary, significant
from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.records.event_log import SearchState
from slm_lab.spec.search import dimensions

if TYPE_CHECKING:
    from slm_lab.records.progress import SearchProgress
    from slm_lab.studies.study import Study

REFRESH = 0.5
"""Seconds between two updates of the table."""
FEWEST_ROWS = 6
"""The minimum rows of the live table; a taller terminal shows more."""
AROUND = 8
"""Lines of a terminal outside the table."""
BAR_WIDTH = 16
ROOM_FOR_BAR = 100
"""The minimum width of a terminal for bars, in columns; a narrower one shows only
values."""
GAP = 2
"""Blank columns between two columns of a table."""

STYLES = {
    Status.WAITING: "dim",
    Status.RUNNING: "cyan",
    Status.PAUSED: "dim",
    Status.FINISHED: "green",
    Status.STOPPED: "yellow",
    Status.FAILED: "bold red",
}


class Turn(NamedTuple):
    """The part of a trial's state whose change makes a log line."""

    status: Status
    restarts: int
    copies: int


class SearchDisplay:
    """Shows a search inside its `with` block; `update` must be called a few times a
    second. `names` are the short names of the searched keys, `max_frame` is the budget
    of a trial."""

    def __init__(
        self,
        console: Console,
        search: "Study | SearchProgress",
        names: Mapping[str, str],
        max_frame: int,
    ) -> None:
        self._console = console
        self._search = search
        self._names = names
        self._max_frame = max_frame
        self._logged = {
            trial: _turn(state) for trial, state in self._state.trials.items()
        }
        for state in self._state.of(Status.RUNNING):  # when the search was killed
            self._logged[state.trial] = _turn(state)._replace(status=Status.WAITING)
        self._logged_stopping = False
        self._next = 0.0
        self.screen = Screen(console)

    @property
    def _state(self) -> SearchState:
        return self._search.search_state

    def __enter__(self) -> Self:
        self.screen.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._next = 0.0
        self.update()
        self.screen.__exit__(*error)

    def update(self) -> None:
        """Shows the current state."""
        if not self.screen.is_live:
            self._log()
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + REFRESH
        self._log(failures_only=True)
        note = ""
        if self._search.stopping and self._state.of(Status.RUNNING):
            note = STOPPING
        rows = max(FEWEST_ROWS, self._console.height - AROUND)
        self.screen.show(
            Group(self._table(rows), self._summary(), Text(note, "yellow"))
        )

    def print_best(self, count: int) -> None:
        """Prints the best trials, if no live table stays on the screen."""
        if not self.screen.is_live:
            self._console.print(self._table(count))
            more = len(self._state.trials) - count
            if more > 0:
                print_line(self._console, Text(f"and {more} more in the table", "dim"))

    def _table(self, rows: int) -> Table:
        running = self._state.of(Status.RUNNING)
        others = [state for state in self._state.ranked if state not in running]
        with_bar = self._console.width >= ROOM_FOR_BAR
        table, paths = self._empty_table(with_bar)
        for state in [*running, *others][:rows]:
            frame = max(self._search.frame_of(state.trial), state.frame)
            restarts = ""
            if state.restarts:
                restarts = f" ({state.restarts + 1}. try)"
            bar = ProgressBar(
                self._max_frame, min(frame, self._max_frame), width=BAR_WIDTH
            )
            table.add_row(
                f"t{state.trial}",
                Text(f"{state.status}{restarts}", STYLES[state.status]),
                *([bar] if with_bar else []),
                short(frame) if frame % 1000 == 0 else f"{frame:,}",
                significant(state.score),
                *(value_text(state.params[path]) for path in paths),
            )
        return table

    def _empty_table(self, with_bar: bool) -> tuple[Table, list[str]]:
        """A table with its header, and the paths of the searched keys that fit the
        console."""
        table = Table.grid(padding=(0, GAP))
        bar = [("", BAR_WIDTH)] if with_bar else []
        heads = [("trial", 5), ("", 8), *bar, ("frames", 9), ("score", 7)]
        room = self._console.width
        for head, fixed in heads:
            side: JustifyMethod = "right" if head in ("frames", "score") else "left"
            table.add_column(no_wrap=True, min_width=fixed, justify=side)
            room -= fixed + GAP
        shown = [head for head, _ in heads]
        paths: list[str] = []
        for path, name in self._names.items():
            trials = self._state.trials.values()
            texts = [name, *(value_text(state.params[path]) for state in trials)]
            room -= max(map(len, texts)) + GAP
            if room < 0:
                break
            paths.append(path)
            shown.append(name)
            table.add_column(no_wrap=True, justify="right")
        left = len(self._names) - len(paths)
        if left:
            table.add_column(no_wrap=True)
            shown.append(f"+{left}")
        table.add_row(*(Text(head, "dim") for head in shown))
        return table, paths

    def _summary(self) -> Text:
        counts = [(len(self._state.of(status)), status) for status in Status]
        message = ", ".join(f"{count} {status}" for count, status in counts if count)
        known = f"{len(self._state.trials)} of {self._search.num_trials} trials"
        best = self._best()
        return Text.assemble(
            (f"{known}: {message}", "dim"), (best and f"\nbest so far: {best}", "bold")
        )

    def _best(self) -> str:
        for state in self._state.ranked:
            if state.status.is_over and state.score is not None:
                return (
                    f"t{state.trial} with {significant(state.score)}: "
                    f"{self._values(state)}"
                )
        return ""

    def _values(self, state: TrialState) -> str:
        return ", ".join(point_texts(state, self._names))

    def _log(self, failures_only: bool = False) -> None:
        if self._search.stopping and not self._logged_stopping and not failures_only:
            self._logged_stopping = True
            print_line(self._console, STOPPING)
        for trial, state in self._state.trials.items():
            turn = _turn(state)
            before = self._logged.get(trial)
            is_retried = before is not None and state.restarts > before.restarts
            if turn == before or (state.status is Status.WAITING and not is_retried):
                continue
            self._logged[trial] = turn
            if not failures_only or is_retried or state.status is Status.FAILED:
                print_line(self._console, f"t{trial} {self._change(state, before)}")

    def _change(self, state: TrialState, before: Turn | None) -> str:
        if before is not None and state.restarts > before.restarts:
            return f"restarts: {error_summary(str(state.last_failure))}"
        if state.status is Status.RUNNING:
            return (
                f"{'begins' if before is None else 'continues'}: {self._values(state)}"
            )
        if state.status is Status.FAILED:
            return f"failed: {error_summary(str(state.error))}"
        if (
            state.status is Status.PAUSED
            and before is not None
            and state.copies > before.copies
        ):
            return f"copies t{state.donor}: {self._values(state)}"
        best = self._best()
        end = ""
        if best:
            end = f"; best so far {best}"
        at = f"{state.status} at {short(state.frame)} frames"
        return f"{at} with {significant(state.score)}{end}"


def searched_names(search: Mapping[str, Any] | None) -> dict[str, str]:
    """The short names of the searched keys, by their dotted paths."""
    return short_names([each.path for each in dimensions(search or {})])


def _turn(state: TrialState) -> Turn:
    return Turn(state.status, state.restarts, state.copies)
