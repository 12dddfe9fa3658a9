"""The live table of the trials of a search; without a terminal, lines of a log."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from slm_lab.charts.search_summary import point_texts
from slm_lab.cli.display.live import GAP, StudyTable, TableColumn, TrialStage
from slm_lab.cli.display.screen import print_line
from slm_lab.core.text import short_count, significant
from slm_lab.core.values import short_names, value_text
from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.spec.search import dimensions

if TYPE_CHECKING:
    from slm_lab.records.progress import SearchProgress
    from slm_lab.studies.study import Study

FEWEST_ROWS = 6
"""The minimum rows of the live table; a taller terminal shows more."""
AROUND = 8
"""Lines of a terminal outside the table."""

STYLES = {
    Status.WAITING: "dim",
    Status.RUNNING: "cyan",
    Status.PAUSED: "dim",
    Status.FINISHED: "green",
    Status.STOPPED: "yellow",
    Status.FAILED: "bold red",
}


@final
class TrialsTable(StudyTable):
    """Shows a search. `names` are the short names of the searched keys, `max_frame` is
    the budget of a trial."""

    BAR_WIDTH = 16
    ROOM_FOR_BAR = 100
    TOLD = (Status.FAILED,)

    def __init__(
        self,
        console: Console,
        search: "Study | SearchProgress",
        names: Mapping[str, str],
        max_frame: int,
    ) -> None:
        super().__init__(console, search)
        self._names = names
        self._max_frame = max_frame

    def print_best(self, count: int) -> None:
        """Prints the best trials, if no live table stays on the screen."""
        if not self.is_live:
            self._console.print(self._table(count))
            more = len(self._state.trials) - count
            if more > 0:
                print_line(self._console, f"and {more} more in the table", "dim")

    @override
    def _picture(self) -> RenderableType:
        rows = max(FEWEST_ROWS, self._console.height - AROUND)
        return Group(self._table(rows), self._summary())

    def _table(self, count: int) -> Table:
        """The running trials, and then the best of the others."""
        running = self._state.of(Status.RUNNING)
        others = [state for state in self._state.ranked if state not in running]
        columns = [
            TableColumn("trial", 5, justify="left"),
            TableColumn("", 8, justify="left"),
            *self._bars(),
            TableColumn("frames", 9),
            TableColumn("score", 7),
        ]
        paths = self._paths_beside(columns)
        columns += [TableColumn(self._names[path]) for path in paths]
        if len(paths) < len(self._names):
            more = len(self._names) - len(paths)
            columns.append(TableColumn(f"+{more}", justify="left"))
        table = self._grid(columns)
        for state in [*running, *others][:count]:
            frame = max(self._study.frame_of(state.trial), state.frame)
            attempt = ""
            if state.restarts:
                attempt = f" ({state.restarts + 1}. try)"
            table.add_row(
                f"t{state.trial}",
                Text(f"{state.status}{attempt}", STYLES[state.status]),
                *self._bar(frame, self._max_frame),
                short_count(frame) if frame % 1000 == 0 else f"{frame:,}",
                significant(state.score),
                *(value_text(state.params[path]) for path in paths),
            )
        return table

    def _paths_beside(self, columns: list[TableColumn]) -> list[str]:
        """The paths of the searched keys that fit the console beside `columns`."""
        widths = [column.most or column.width for column in columns]
        room = self._console.width - sum(width + GAP for width in widths)
        paths: list[str] = []
        for path, name in self._names.items():
            trials = self._state.trials.values()
            texts = [name, *(value_text(state.params[path]) for state in trials)]
            room -= max(map(len, texts)) + GAP
            if room < 0:
                break
            paths.append(path)
        return paths

    def _summary(self) -> Text:
        counts = [(len(self._state.of(status)), status) for status in Status]
        message = ", ".join(f"{count} {status}" for count, status in counts if count)
        known = f"{len(self._state.trials)} of {self._study.num_trials} trials"
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

    @override
    def _name(self, trial: int) -> str:
        return f"t{trial}"

    @override
    def _change(self, state: TrialState, before: TrialStage | None) -> str:
        if state.status is Status.RUNNING:
            verb = "begins" if before is None else "continues"
            return f" {verb}: {self._values(state)}"
        if (
            state.status is Status.PAUSED
            and before is not None
            and state.copies > before.copies
        ):
            return f" copies t{state.donor}: {self._values(state)}"
        best = self._best()
        end = ""
        if best:
            end = f"; best so far {best}"
        at = f"{state.status} at {short_count(state.frame)} frames"
        return f" {at} with {significant(state.score)}{end}"


def searched_names(search: Mapping[str, Any] | None) -> dict[str, str]:
    """The short names of the searched keys, by their dotted paths."""
    return short_names([variable.path for variable in dimensions(search or {})])
