"""The display of a running search: a live table of trials, or log lines without a terminal."""

import time
from typing import NamedTuple, Self

from rich.console import Console, Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slm_lab.analysis.search.summary import short_names, value_text
from slm_lab.analysis.search.trial_state import Status, TrialState
from slm_lab.cli.live import short
from slm_lab.cli.screen import Screen, print_line
from slm_lab.core.text import error_summary, significant
from slm_lab.experiment.experiment import Experiment
from slm_lab.experiment.search.event_log import SearchState
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import dimensions

REFRESH = 0.5
"""Seconds between two updates of the table."""
FEWEST_ROWS = 6
"""The minimum rows of the live table; a taller terminal shows more."""
AROUND = 8
"""Lines of a terminal outside the table."""
BAR_WIDTH = 16
ROOM_FOR_BAR = 100
"""The minimum width of a terminal for bars, in columns; a narrower one shows only values."""
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
STOPPING = "saving, then stopping; Ctrl-C again ends at once"


class Turn(NamedTuple):
    """The part of a trial's state whose change makes a log line."""

    status: Status
    restarts: int
    copies: int

    @classmethod
    def of(cls, state: TrialState) -> "Turn":
        """The current values of a trial."""
        return cls(state.status, state.restarts, state.copies)


class SearchDisplay:
    """Shows a search inside its `with` block; `update` must be called a few times a second."""

    def __init__(self, console: Console, search: Experiment) -> None:
        self._console = console
        self._search = search
        self._paths = searched_paths(search.spec)
        self._names = short_names(self._paths)
        self._logged = {
            trial: Turn.of(state) for trial, state in search.search_state.trials.items()
        }
        for state in search.search_state.of(Status.RUNNING):  # when the search was killed
            self._logged[state.trial] = Turn.of(state)._replace(status=Status.WAITING)
        self._logged_stopping = False
        self._next = 0.0
        self._screen = Screen(console)

    @property
    def is_live(self) -> bool:
        """Whether the output is a terminal."""
        return self._screen.is_live

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._next = 0.0
        self.update()
        self._screen.__exit__(*error)

    def update(self) -> None:
        """Shows the current state."""
        if not self._screen.is_live:
            self._log()
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + REFRESH
        self._log(failures_only=True)
        note = STOPPING if self._search.stopping and self._search.pool.running else ""
        self._screen.show(Group(self._table(), self._summary(), Text(note, "yellow")))

    def _table(self) -> Table:
        rows = max(FEWEST_ROWS, self._console.height - AROUND)
        table = TrialsTable(self._search, self._console.width)
        running = self._search.search_state.of(Status.RUNNING)
        others = [state for state in self._search.search_state.ranked if state not in running]
        shown = running[:rows]
        shown += others[: rows - len(shown)]
        for state in shown:
            process = self._search.pool.running.get(state.trial)
            table.add(state, state.frame if process is None else max(process.frame, state.frame))
        return table.table

    def _summary(self) -> Text:
        search_state = self._search.search_state
        counts = [(len(search_state.of(status)), status) for status in Status]
        message = ", ".join(f"{count} {status}" for count, status in counts if count)
        text = Text(
            f"{len(search_state.trials)} of {self._search.num_trials} trials: {message}", "dim"
        )
        best = best_of(search_state)
        if best is not None:
            text.append(f"\nbest so far: {self._described(best)}", "bold")
        return text

    def _described(self, state: TrialState) -> str:
        values = ", ".join(f"{self._names[p]} {value_text(state.params[p])}" for p in self._paths)
        return f"t{state.trial} with {significant(state.score)}: {values}"

    def _log(self, failures_only: bool = False) -> None:
        """Prints a line for each trial whose state changed, or only for failures."""
        if self._search.stopping and not self._logged_stopping and not failures_only:
            self._logged_stopping = True
            self._print(STOPPING)
        for trial, state in self._search.search_state.trials.items():
            turn, before = Turn.of(state), self._logged.get(trial)
            is_retried = before is not None and state.restarts > before.restarts
            if turn == before or (state.status is Status.WAITING and not is_retried):
                continue
            self._logged[trial] = turn
            if not failures_only or is_retried or state.status is Status.FAILED:
                self._print(self._line(state, before))

    def _line(self, state: TrialState, before: Turn | None) -> str:
        values = ", ".join(f"{self._names[p]} {value_text(state.params[p])}" for p in self._paths)
        if before is not None and state.restarts > before.restarts:
            return f"t{state.trial} restarts: {error_summary(str(state.last_failure))}"
        if state.status is Status.RUNNING:
            return f"t{state.trial} {'begins' if before is None else 'continues'}: {values}"
        if state.status is Status.FAILED:
            return f"t{state.trial} failed: {error_summary(str(state.error))}"
        if state.status is Status.PAUSED and before is not None and state.copies > before.copies:
            return f"t{state.trial} copies t{state.donor}: {values}"
        best = best_of(self._search.search_state)
        end = "" if best is None else f"; best so far {self._described(best)}"
        line = f"t{state.trial} {state.status} at {short(state.frame)} frames"
        return f"{line} with {significant(state.score)}{end}"

    def _print(self, line: str) -> None:
        print_line(self._console, line)


class TrialsTable:
    """A table of trials, `width` columns wide, with as many searched keys as fit."""

    def __init__(self, search: Experiment, width: int) -> None:
        paths, max_frame = searched_paths(search.spec), search.spec.env.max_frame
        self._with_bar = width >= ROOM_FOR_BAR
        self._max_frame = max_frame
        self.table = Table.grid(padding=(0, GAP))
        room = width
        for fixed in (5, 8, BAR_WIDTH if self._with_bar else 0, 9, 7):
            if fixed:
                right = fixed in (9, 7)
                self.table.add_column(
                    no_wrap=True, min_width=fixed, justify="right" if right else "left"
                )
                room -= fixed + GAP
        names, points = (
            short_names(paths),
            [state.params for state in search.search_state.trials.values()],
        )
        self._paths: list[str] = []
        for path in paths:
            texts = [names[path], *(value_text(params[path]) for params in points)]
            room -= max(map(len, texts)) + GAP
            if room < 0:
                break
            self._paths.append(path)
            self.table.add_column(no_wrap=True, justify="right")
        left = len(paths) - len(self._paths)
        heads = ["trial", "", *([""] if self._with_bar else []), "frames", "return"]
        heads += [names[path] for path in self._paths]
        if left:
            self.table.add_column(no_wrap=True)
            heads.append(f"+{left}")
        self.table.add_row(*(Text(head, "dim") for head in heads))

    def add(self, state: TrialState, frame: int) -> None:
        """Adds a row: a trial at `frame` of its budget."""
        restarts = f" ({state.restarts + 1}. try)" if state.restarts else ""
        bar = ProgressBar(self._max_frame, min(frame, self._max_frame), width=BAR_WIDTH)
        self.table.add_row(
            f"t{state.trial}",
            Text(f"{state.status}{restarts}", STYLES[state.status]),
            *([bar] if self._with_bar else []),
            short(frame) if frame % 1000 == 0 else f"{frame:,}",
            significant(state.score),
            *(value_text(state.params[path]) for path in self._paths),
        )


def searched_paths(spec: Spec) -> list[str]:
    """The dotted paths of the searched keys."""
    return [each.path for each in dimensions(spec.search or {})]


def best_of(search_state: SearchState) -> TrialState | None:
    """The best of the ended trials; None if none has a score."""
    over = (
        state for state in search_state.ranked if state.status.is_over and state.score is not None
    )
    return next(over, None)
