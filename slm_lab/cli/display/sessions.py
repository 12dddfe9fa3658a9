"""The live table of the Sessions of a training."""

import time
from typing import TYPE_CHECKING, final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from slm_lab.cli.display.live import STOPPING, LiveTable, TableColumn
from slm_lab.cli.display.screen import print_line
from slm_lab.core.text import (
    duration_text,
    error_summary,
    number_or_dash,
    short_count,
    significant,
)
from slm_lab.records.progress import RecentSpeed, TrialProgress
from slm_lab.records.trust import command_text, modules_of, resume_words
from slm_lab.session.status_board import (
    TO_BEGIN,
    Flow,
    Phase,
    SessionProgress,
    StatusBoard,
)
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.session_names import role

if TYPE_CHECKING:
    from slm_lab.studies.run import PreparedRun
    from slm_lab.studies.search.run import SearchRun

LOG_INTERVAL = 5.0
MOST_LOG_INTERVAL = 600.0
"""Seconds between two plain log lines of one Session; they double with each line, up to
the second number."""
COLUMNS = (
    TableColumn("frames/s", 8),
    TableColumn("return", 7),
    TableColumn("best", 7),
    TableColumn("left", 7),
)

PHASES = {
    Phase.WAITING: ("waits", "dim"),
    Phase.STARTING: ("starts", "dim"),
    Phase.READY: ("ready", "dim"),
    Phase.RUNNING: ("", ""),
    Phase.DONE: ("done", "green"),
    Phase.FAILED: ("failed", "bold red"),
    Phase.STOPPED: ("stopped", "yellow"),
}
BUSY = (Phase.STARTING, Phase.READY, Phase.RUNNING)


@final
class _SessionLine:
    """A Session in the table and in the log."""

    def __init__(self, meta: MetaSpec, session: int) -> None:
        self.session = session
        self.name = role(meta, session) or f"Session {session}"
        self.log_name = self.name
        if role(meta, session) is not None and len(meta.trainings) > 1:
            run = session // meta.sessions_per_training + 1
            self.log_name = f"{self.name} of run {run}"
        self.acts = meta.is_actor(session)
        """Whether it is an actor, which has no share of the budget and no returns."""
        self.reason: str | None = None
        """Why it last failed, as it was printed."""
        self._speed = RecentSpeed()
        self._logged_at = 0.0
        self._logged_phase = Phase.WAITING
        self._interval = LOG_INTERVAL

    def update(self, progress: SessionProgress, now: float) -> None:
        """Shows the state at the time `now`."""
        self.progress = progress
        self.frame = progress.frame
        self.phase = progress.phase
        self.speed: float | None = None
        if self.phase is Phase.RUNNING:
            self.speed = self._speed.update(self.frame, now)
        self.restarts = ""
        if progress.restarts:
            self.restarts = f" (restarted {progress.restarts}×)"

    def is_news(self, now: float) -> bool:
        """Whether a log has a line of it now. It has one at every change of phase, and
        while it runs at growing intervals. The line then counts as logged."""
        has_changed = self.phase is not self._logged_phase
        is_due = self.phase is Phase.RUNNING and now - self._logged_at >= self._interval
        if not has_changed and not is_due:
            return False
        self._interval = min(2 * self._interval, MOST_LOG_INTERVAL)
        if has_changed:
            self._interval = LOG_INTERVAL
        self.starts = has_changed and self.phase is Phase.RUNNING
        self._logged_at = now
        self._logged_phase = self.phase
        return self.phase not in TO_BEGIN


@final
class SessionsTable(LiveTable):
    """Shows a Trial inside its `with` block; `update` must be called a few times a
    second. The Sessions of one training share its budget of `max_frame` frames, of
    which actors take none. Several trainings run one after the other."""

    BAR_WIDTH = 24
    ROOM_FOR_BAR = 72

    def __init__(self, console: Console, meta: MetaSpec, max_frame: int) -> None:
        super().__init__(console)
        self._trainings = meta.trainings
        self._max_frame = max_frame
        self._lines = [
            _SessionLine(meta, session) for session in range(meta.num_sessions)
        ]
        self._by_trainings = meta.sessions_per_training > 1
        has_actors = any(line.acts for line in self._lines)
        self._together = self._by_trainings and not has_actors
        self._note = ""
        self._table = Table.grid()

    def update(self, status_board: StatusBoard | TrialProgress) -> None:
        """Shows the current state."""
        now = time.monotonic()
        for line in self._lines:
            line.update(status_board.read(line.session), now)
            reason = status_board.reasons.get(line.session)
            if reason is not None and reason != line.reason:
                line.reason = reason
                self._print(f"{line.log_name}: {error_summary(reason)}", "red")
        note = status_board.stage or (STOPPING if status_board.stop_requested else "")
        if self.is_live:
            self._table = self._draw()
            flow = flow_text(status_board.flow(self._current()[1].start))
            self._show(Text(flow, "dim"), Text(note, "yellow"))
        else:
            for line in self._lines:
                if line.is_news(now):
                    self._log(line, flow_text(status_board.flow(line.session)))
            if note and note != self._note:
                self._print(note)
        self._note = note

    @override
    def _picture(self) -> RenderableType:
        return self._table

    def _draw(self) -> Table:
        number_of_run, sessions = self._current()
        shown = [self._lines[session] for session in sessions]
        columns = (
            TableColumn(number_of_run, justify="left"),
            *self._bars(),
            TableColumn("frames", len(self._frames_of_budget(self._max_frame))),
            *COLUMNS,
        )
        table = self._grid(columns)
        for line in shown:
            table.add_row(*self._cells(line))
        if self._together:
            table.add_row("together", *self._total(shown, self._max_frame))
        if len(self._trainings) > 1:
            counted = [line for line in self._lines if not line.acts]
            whole = len(self._trainings) * self._max_frame
            if not self._by_trainings:
                whole -= sum(
                    self._max_frame - line.frame
                    for line in self._lines
                    if line.phase is Phase.FAILED
                )
            table.add_row("all", *self._total(counted, whole))
        return table

    def _total(self, lines: list[_SessionLine], whole: int) -> list[RenderableType]:
        """The cells of Sessions together after their name."""
        frames = sum(line.frame for line in lines)
        speed = sum(line.speed or 0.0 for line in lines)
        return [
            *self._bar(frames, whole),
            f"{frames:,} / {short_count(whole)}",
            number_or_dash(speed or None, ",.0f"),
            "",
            "",
            time_left(whole - frames, speed),
        ]

    def _cells(self, line: _SessionLine) -> list[RenderableType]:
        """The cells of a Session."""
        word, style = PHASES[line.phase]
        ending = Text(word, style)
        speed = ""
        if line.phase is Phase.RUNNING:
            speed = number_or_dash(line.speed, ",.0f")
        if line.acts:
            frames = f"{line.frame:,}" if line.frame else ""
            cells: list[RenderableType] = [
                line.name + line.restarts,
                frames,
                speed,
                "",
                "",
                ending,
            ]
            if self._has_bars:
                cells.insert(1, "")
            return cells
        if not word and not self._together:
            ending = Text(time_left(self._max_frame - line.frame, line.speed))
        return [
            line.name + line.restarts,
            *self._bar(line.frame, self._max_frame),
            self._frames_of_budget(line.frame),
            speed,
            significant(line.progress.recent_return),
            significant(line.progress.best),
            ending,
        ]

    def _current(self) -> tuple[str, range]:
        """The number of the current training, and its Sessions, which are shown."""
        count = len(self._trainings)
        if not self._by_trainings or count == 1:
            return "", range(len(self._lines))
        current = 0
        for run, workers in enumerate(self._trainings):
            lines = [self._lines[session] for session in workers]
            if any(line.frame or line.phase in BUSY for line in lines):
                current = run
        return f"run {current + 1} of {count}", self._trainings[current]

    def _log(self, line: _SessionLine, flow: str) -> None:
        """Prints a line of a Session."""
        if line.starts:
            self._print(f"{line.log_name}: started")
            return
        is_running = line.phase is Phase.RUNNING
        recent_return = line.progress.recent_return
        best = line.progress.best
        facts = [f"{self._frames_of_budget(line.frame)} frames"]
        if line.acts:
            facts = [f"{line.frame:,} frames"] if line.frame else []
        if is_running and line.speed is not None:
            facts.append(f"{line.speed:,.0f} frames/s")
        if not line.acts and recent_return is not None:
            facts.append(f"return {significant(recent_return)}")
        if not line.acts and best is not None:
            facts.append(f"best {significant(best)}")
        if not is_running:
            facts.append(PHASES[line.phase][0])
        elif line.speed and not line.acts:
            facts.append(f"{self._time_left(line)} left")
        text = ", ".join(facts)
        if flow and is_running:
            text = f"{text}; {flow}"
        self._print(f"{line.log_name}: {text}{line.restarts}")

    def _time_left(self, line: _SessionLine) -> str:
        """The time to the end of a Session, or of the training that shares its
        budget."""
        peers = [line]
        if self._together:
            peers = [self._lines[session] for session in self._current()[1]]
        frames = sum(peer.frame for peer in peers)
        speed = sum(peer.speed or 0.0 for peer in peers)
        return time_left(self._max_frame - frames, speed)

    def _print(self, line: str, style: str = "") -> None:
        print_line(self._console, f"{time.strftime('%H:%M:%S')} {line}", style)

    def _frames_of_budget(self, frame: int) -> str:
        return f"{frame:,} / {short_count(self._max_frame)}"


def time_left(frames: int, speed: float | None) -> str:
    """The time that `frames` take at `speed`, as "1:02:03" or "2:03"."""
    if speed:
        return duration_text(frames / speed)
    return "–"


def flow_text(flow: Flow | None) -> str:
    """Numbers that show whether actors or learner are the bottleneck; empty if
    unknown."""
    if flow is None:
        return ""
    return (
        f"learns from {number_or_dash(flow.eps, ',.1f')} environments/s, policy lag "
        f"{number_or_dash(flow.policy_lag, '.1f')}; actors wait "
        f"{number_or_dash(flow.actor_wait_share, '.0%')} and the learner "
        f"{number_or_dash(flow.learner_wait_share, '.0%')} of their time"
    )


def print_resume(console: Console, verb: str, run: "PreparedRun | SearchRun") -> None:
    """Prints the command that resumes a run, with its recorded spec."""
    words = resume_words(run.run_dir.root, verb == "search", run.spec.meta.cluster)
    command = command_text(words, [*run.imports, *modules_of(run.spec)])
    print_line(console, f"resume with: {command}")
