"""What a search shows while it runs: a live table of trials, or log lines without a terminal."""

import time
from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console, Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slm_lab.analysis.experiment import short_names, value_text
from slm_lab.cli.live import short
from slm_lab.cli.screen import Screen, say
from slm_lab.core.headline import headline
from slm_lab.core.numerals import significant
from slm_lab.experiment.search.outcomes import best_first
from slm_lab.experiment.search.record import Standing, Status, TrialState
from slm_lab.experiment.search.search import Search
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import dimensions

REFRESH = 0.5
"""Seconds between two looks at the trials."""
FEWEST_ROWS = 6
"""Of the live table; a higher terminal has room for more."""
AROUND = 8
"""Lines of a terminal that are not the table's."""
BAR_WIDTH = 16
ROOM_FOR_BAR = 100
"""Columns of a terminal from which on there are bars: the values come first."""
GAP = 2
"""Columns between two of a table."""

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
    """What a line of the log is about."""

    status: Status
    restarts: int
    copies: int

    @classmethod
    def of(cls, its: TrialState) -> "Turn":
        """Where a trial stands."""
        return cls(its.status, its.restarts, its.copies)


class SearchDisplay:
    """Shows a search until it is left; `update` is called a few times a second."""

    def __init__(self, console: Console, search: Search) -> None:
        self._console = console
        self._search = search
        self._paths = searched_paths(search.spec)
        self._names = short_names(self._paths)
        self._said = {trial: Turn.of(its) for trial, its in search.standing.trials.items()}
        for its in search.standing.of(Status.RUNNING):  # when it was killed
            self._said[its.trial] = Turn.of(its)._replace(status=Status.WAITING)
        self._said_stopping = False
        self._next = 0.0
        self._screen = Screen(console)

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal to show it on."""
        return self._screen.is_live

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._next = 0.0
        self.update()
        self._screen.__exit__(exc_type, exc, traceback)

    def update(self) -> None:
        """Shows how things stand."""
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
        running = self._search.standing.of(Status.RUNNING)
        others = [its for its in best_first(self._search.standing) if its not in running]
        shown = running[:rows]
        shown += others[: rows - len(shown)]
        for its in shown:
            process = self._search.pool.running.get(its.trial)
            table.add(its, its.frame if process is None else max(process.frame, its.frame))
        return table.table

    def _summary(self) -> Text:
        standing = self._search.standing
        counts = [(len(standing.of(status)), status) for status in Status]
        told = ", ".join(f"{count} {status}" for count, status in counts if count)
        text = Text(f"{len(standing.trials)} of {self._search.num_trials} trials: {told}", "dim")
        best = best_of(standing)
        if best is not None:
            text.append(f"\nbest so far: {self._told(best)}", "bold")
        return text

    def _told(self, its: TrialState) -> str:
        values = ", ".join(f"{self._names[p]} {value_text(its.point[p])}" for p in self._paths)
        return f"t{its.trial} with {significant(its.score)}: {values}"

    def _log(self, failures_only: bool = False) -> None:
        """A line at every turn of a trial, or at those that are failures."""
        if self._search.stopping and not self._said_stopping and not failures_only:
            self._said_stopping = True
            self._say(STOPPING)
        for trial, its in self._search.standing.trials.items():
            turn, before = Turn.of(its), self._said.get(trial)
            is_retried = before is not None and its.restarts > before.restarts
            if turn == before or (its.status is Status.WAITING and not is_retried):
                continue
            self._said[trial] = turn
            if not failures_only or is_retried or its.status is Status.FAILED:
                self._say(self._line(its, before))

    def _line(self, its: TrialState, before: Turn | None) -> str:
        values = ", ".join(f"{self._names[p]} {value_text(its.point[p])}" for p in self._paths)
        if before is not None and its.restarts > before.restarts:
            return f"t{its.trial} is tried again: {headline(str(its.last_failure))}"
        if its.status is Status.RUNNING:
            return f"t{its.trial} {'begins' if before is None else 'goes on'}: {values}"
        if its.status is Status.FAILED:
            return f"t{its.trial} failed: {headline(str(its.error))}"
        if its.status is Status.PAUSED and before is not None and its.copies > before.copies:
            return f"t{its.trial} takes over from t{its.donor}: {values}"
        best = best_of(self._search.standing)
        end = "" if best is None else f"; best so far {self._told(best)}"
        line = f"t{its.trial} {its.status} at {short(its.frame)} frames"
        return f"{line} with {significant(its.score)}{end}"

    def _say(self, line: str) -> None:
        say(self._console, line)


class TrialsTable:
    """A table of trials, `width` columns wide, with as many variables as there is room for."""

    def __init__(self, search: Search, width: int) -> None:
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
        names, points = short_names(paths), [its.point for its in search.standing.trials.values()]
        self._paths: list[str] = []
        for path in paths:
            texts = [names[path], *(value_text(point[path]) for point in points)]
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

    def add(self, its: TrialState, frame: int) -> None:
        """A line: a trial that is at `frame` of its budget."""
        restarts = f" ({its.restarts + 1}. try)" if its.restarts else ""
        bar = ProgressBar(self._max_frame, min(frame, self._max_frame), width=BAR_WIDTH)
        self.table.add_row(
            f"t{its.trial}",
            Text(f"{its.status}{restarts}", STYLES[its.status]),
            *([bar] if self._with_bar else []),
            short(frame) if frame % 1000 == 0 else f"{frame:,}",
            significant(its.score),
            *(value_text(its.point[path]) for path in self._paths),
        )


def searched_paths(spec: Spec) -> list[str]:
    """The dotted paths of the searched keys."""
    return [each.path for each in dimensions(spec.search or {})]


def best_of(standing: Standing) -> TrialState | None:
    """The best of the trials that have ended, if any has a score."""
    over = (its for its in best_first(standing) if its.status.is_over and its.score is not None)
    return next(over, None)
