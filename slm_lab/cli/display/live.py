"""The display of a training run: a live line per Session, or log lines; and names of
Sessions."""

import math
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slm_lab.cli.display.screen import Screen, print_line
from slm_lab.core.text import count_text, duration_text, error_summary, significant
from slm_lab.records.trust import command_text, modules_of, resume_words
from slm_lab.session.status_board import (
    TO_BEGIN,
    Flow,
    Phase,
    SessionProgress,
    StatusBoard,
)
from slm_lab.spec.schema.meta import MetaSpec

if TYPE_CHECKING:
    from slm_lab.records.progress import TrialProgress
    from slm_lab.studies.run import Run
    from slm_lab.studies.search.prepare import Prepared

LOG_INTERVAL = 5.0
MOST_LOG_INTERVAL = 600.0
"""Seconds between two plain log lines of one Session; they double with each line, up to
the second number."""
SPEED_WINDOW = 5.0
"""The minimum number of seconds over which the speed is averaged."""
SPEED_SHARE = 0.1
"""The minimum share of the run over which the speed is averaged, for a steady time
left."""
SPEED_PAUSES = 4
"""The minimum averaging window, in multiples of the longest pause between two frames:
an agent makes no steps while it learns for seconds, and unrolls of seconds arrive at
once."""
BAR_WIDTH = 24
"""Characters of a progress bar."""
ROOM_FOR_BAR = 72
"""The minimum width of a terminal for bars, in columns; a narrower one shows only
numbers."""

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

STOPPING = "saving, then stopping; Ctrl-C again ends at once"


class Speed:
    """The recent frames per second of a running Session."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._began: float | None = None
        self._longest_pause = 0.0

    def update(self, frame: int, now: float) -> float | None:
        """Records the frame at the time `now`; returns the speed, or None before any
        progress. Pauses count, but the one since the last frames only once it exceeds
        the mean pause."""
        self._began = now if self._began is None else self._began
        if self._seen:
            self._longest_pause = max(self._longest_pause, now - self._seen[-1][0])
        if not self._seen or frame != self._seen[-1][1]:
            self._seen.append((now, frame))
        window = max(
            SPEED_WINDOW,
            SPEED_SHARE * (now - self._began),
            SPEED_PAUSES * self._longest_pause,
        )
        while len(self._seen) > 2 and self._seen[1][0] < now - window:
            self._seen.popleft()
        (before, first) = self._seen[0]
        (last, _) = self._seen[-1]
        if frame == first:
            return None
        pause = (last - before) / (len(self._seen) - 1)
        return (frame - first) / (max(last, now - pause) - before)


class _LastLine(NamedTuple):
    when: float = 0.0
    phase: Phase = Phase.WAITING
    interval: float = LOG_INTERVAL


class LiveDisplay:
    """Shows a Trial inside its `with` block; `update` must be called a few times a
    second. The Sessions of one training share its budget of `max_frame` frames, of
    which actors take none. Several trainings run one after the other."""

    def __init__(self, console: Console, meta: MetaSpec, max_frame: int) -> None:
        num_sessions = meta.num_sessions
        self._console = console
        self._trainings = meta.trainings
        self._max_frame = max_frame
        self._roles = [role(meta, session) for session in range(num_sessions)]
        self._acts = [meta.is_actor(session) for session in range(num_sessions)]
        self._by_trainings = meta.sessions_per_training > 1
        self._together = self._by_trainings and not any(self._acts)
        self._speeds = [Speed() for _ in range(num_sessions)]
        self._logged = [_LastLine()] * num_sessions
        self._reasons: dict[int, str] = {}
        self._note = ""
        self._table = Table.grid()
        self._screen = Screen(console)

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._screen.show(self._table)
        self._screen.__exit__(*error)

    def update(self, board: "StatusBoard | TrialProgress") -> None:
        """Shows the current state."""
        now = time.monotonic()
        for session, why in board.reasons.items():
            if self._reasons.get(session) != why:
                self._reasons[session] = why
                self._print(f"{self._log_name(session)}: {error_summary(why)}", "red")
        sessions = [board.read(i) for i in range(len(self._speeds))]
        speeds = [
            speed.update(progress.frame, now)
            if progress.phase is Phase.RUNNING
            else None
            for speed, progress in zip(self._speeds, sessions, strict=True)
        ]
        note = board.stage or (STOPPING if board.stop_requested else "")
        if self._screen.is_live:
            self._table = self._draw(sessions, speeds)
            flow = flow_text(board.flow(self._current(sessions)[1].start))
            self._screen.show(
                Group(self._table, Text(flow, "dim"), Text(note, style="yellow"))
            )
        else:
            peers = self._current(sessions)[1]
            together = (
                sum(sessions[s].frame for s in peers),
                sum(speeds[s] or 0.0 for s in peers),
            )
            for index, (progress, speed) in enumerate(
                zip(sessions, speeds, strict=True)
            ):
                frame, of_all = together if self._together else (progress.frame, speed)
                left = time_left(self._max_frame - frame, of_all)
                self._log(
                    index, progress, speed, now, left, flow_text(board.flow(index))
                )
            if note and note != self._note:
                self._print(note)
        self._note = note

    def _draw(
        self, sessions: list[SessionProgress], speeds: list[float | None]
    ) -> Table:
        with_bar = self._console.width >= ROOM_FOR_BAR
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        if with_bar:
            table.add_column(max_width=BAR_WIDTH)
        frames = len(self._frames(self._max_frame))
        # fixed, so that columns do not move as numbers grow
        for width in (frames, 8, 7, 7, 7):
            table.add_column(justify="right", no_wrap=True, min_width=width)
        number_of_run, shown = self._current(sessions)
        names = ("frames", "frames/s", "return", "best", "left")
        header = (number_of_run, *([""] if with_bar else []), *names)
        table.add_row(*(Text(name, style="dim") for name in header))
        for index in shown:
            table.add_row(*self._row(index, sessions[index], speeds[index], with_bar))
        known = [
            s for s, acts in zip(speeds, self._acts, strict=True) if s and not acts
        ]
        speed = None
        if known:
            speed = sum(known)

        def add_total(name: str, frames: int, whole: int) -> None:
            bar = [ProgressBar(whole, frames)] if with_bar else []
            cells = f"{frames:,} / {short(whole)}", number(speed, ",.0f"), "", ""
            table.add_row(name, *bar, *cells, time_left(whole - frames, speed))

        if self._together:
            add_total(
                "together", sum(sessions[s].frame for s in shown), self._max_frame
            )
        budgets = len(self._trainings)
        if budgets > 1:
            counted = sum(
                s.frame
                for s, acts in zip(sessions, self._acts, strict=True)
                if not acts
            )
            dropped = (s for s in sessions if s.phase is Phase.FAILED)
            never = sum(self._max_frame - s.frame for s in dropped) * (
                not self._by_trainings
            )
            add_total("all", counted, budgets * self._max_frame - never)
        return table

    def _row(
        self, index: int, progress: SessionProgress, speed: float | None, with_bar: bool
    ) -> list[RenderableType]:
        """The cells of a Session; actors have no share of the budget and no returns."""
        acts = self._acts[index]
        frame = progress.frame
        has_end = not acts and not self._together
        left = ""
        if has_end:
            left = time_left(self._max_frame - frame, speed)
        word, style = PHASES[progress.phase]
        bar = "" if acts else ProgressBar(self._max_frame, frame)
        return [
            f"{self._roles[index] or f'Session {index}'}{restarted(progress)}",
            *([bar] if with_bar else []),
            self._frames(frame, acts),
            number(speed, ",.0f") if progress.phase is Phase.RUNNING else "",
            "" if acts else significant(progress.recent_return),
            "" if acts else significant(progress.best),
            Text(word, style) if word else left,
        ]

    def _current(self, sessions: list[SessionProgress]) -> tuple[str, range]:
        """The number of the current training, and its Sessions, which are shown."""
        if not self._by_trainings or len(self._trainings) == 1:
            return "", range(len(sessions))
        last = 0
        for run, workers in enumerate(self._trainings):
            if any(sessions[s].frame or sessions[s].phase in BUSY for s in workers):
                last = run
        return f"run {last + 1} of {len(self._trainings)}", self._trainings[last]

    def _log(
        self,
        index: int,
        progress: SessionProgress,
        speed: float | None,
        now: float,
        left: str,
        flow: str,
    ) -> None:
        """Prints a line at every change of phase, and while it runs at growing
        intervals."""
        last = self._logged[index]
        phase = last.phase
        running = progress.phase is Phase.RUNNING
        if progress.phase is phase and (not running or now - last.when < last.interval):
            return
        longer = min(2 * last.interval, MOST_LOG_INTERVAL)
        interval = LOG_INTERVAL
        if progress.phase is phase:
            interval = longer
        self._logged[index] = _LastLine(now, progress.phase, interval)
        if progress.phase in TO_BEGIN:
            return
        if running and progress.phase is not phase:
            self._print(f"{self._log_name(index)}: started")
            return
        word, _ = PHASES[progress.phase]
        frame = progress.frame
        acts = self._acts[index]
        known = [f"{self._frames(frame, acts)} frames"] if frame or not acts else []
        if running and speed is not None:
            known.append(f"{speed:,.0f} frames/s")
        if not acts and progress.recent_return is not None:
            known.append(f"return {significant(progress.recent_return)}")
        if not acts and progress.best is not None:
            known.append(f"best {significant(progress.best)}")
        if word:
            known.append(word)
        elif not acts and speed:
            known.append(f"{left} left")
        flowing = ""
        if flow and running:
            flowing = f"; {flow}"
        self._print(
            f"{self._log_name(index)}: {', '.join(known)}{flowing}{restarted(progress)}"
        )

    def _log_name(self, index: int) -> str:
        """The name of a Session in the log; with several trainings, a role names its
        run."""
        role_name = self._roles[index]
        if role_name is None:
            return f"Session {index}"
        run = index // len(self._trainings[0]) + 1
        if len(self._trainings) > 1:
            return f"{role_name} of run {run}"
        return role_name

    def _print(self, line: str, style: str = "") -> None:
        print_line(self._console, Text(f"{time.strftime('%H:%M:%S')} {line}", style))

    def _frames(self, frame: int, acts: bool = False) -> str:
        """Those of an actor have no budget, and are unknown to `slm-lab watch`."""
        if acts:
            if frame:
                return f"{frame:,}"
            return ""
        return f"{frame:,} / {short(self._max_frame)}"


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
        f"learns from {number(flow.eps, ',.1f')} environments/s, policy lag "
        f"{number(flow.policy_lag, '.1f')}; actors wait "
        f"{number(flow.actor_wait_share, '.0%')} and the learner "
        f"{number(flow.learner_wait_share, '.0%')} of their time"
    )


def restarted(progress: SessionProgress) -> str:
    """The number of restarts, or "" without any."""
    if progress.restarts:
        return f" (restarted {progress.restarts}×)"
    return ""


def number(value: float | None, form: str) -> str:
    """A number, or a dash for None and NaN."""
    if value is None or math.isnan(value):
        return "–"
    return format(value, form)


def short(count: int) -> str:
    """A round number with its unit, such as 200k or 1.5M; any other number in full."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if size <= count < 1000 * size and count % (size // 100) == 0:
            return f"{count / size:g}{unit}"
    return f"{count:,}"


def print_resume(console: Console, verb: str, run: "Run | Prepared") -> None:
    """Prints the command that resumes a run, with its recorded spec."""
    words = resume_words(run.run_dir.root, verb == "search", run.spec.meta.cluster)
    command = command_text(words, [*run.imports, *modules_of(run.spec)])
    print_line(console, f"resume with: {command}")


def role(meta: MetaSpec, session: int) -> str | None:
    """ "learner", or "actor 0" and so on; None if all Sessions do the same."""
    if not meta.mode.has_learner or meta.actor_learner.serial:
        return None
    index = session % meta.sessions_per_training
    if meta.is_actor(session):
        return f"actor {index - 1}"
    return "learner"


def full_name(meta: MetaSpec, session: int) -> str:
    """ "Session 1", which also names its files, with its role if it has one."""
    role_name = role(meta, session)
    if role_name is None:
        return f"Session {session}"
    return f"Session {session} ({role_name})"


def sessions_text(meta: MetaSpec) -> str:
    """The number of Sessions, and the mode in which they train."""
    sessions = count_text(meta.max_session, "Session")
    if meta.distributed is False:
        return sessions
    runs = ""
    if meta.max_run > 1:
        runs = f", {meta.max_run} runs one after the other"
    if not meta.mode.has_learner:
        return f'{sessions} together ("{meta.distributed}"){runs}'
    actors = f"{count_text(meta.max_session, 'actor')} and a learner"
    if meta.actor_learner.serial:
        return f'{actors} in turn ("{meta.distributed}", serial){runs}'
    return f'{actors} ("{meta.distributed}"){runs}'
