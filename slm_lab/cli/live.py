"""What a run shows while it trains: one live line per Session, or log lines without a terminal."""

import math
import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slm_lab.cli.naming import role
from slm_lab.cli.screen import Screen, say
from slm_lab.core.headline import headline
from slm_lab.core.numerals import significant
from slm_lab.experiment.progress import TO_BEGIN, Board, Flow, Phase, SessionProgress
from slm_lab.spec.schema.meta import MetaSpec

LOG_INTERVAL = 5.0
"""Seconds between two plain log lines of one Session."""
SPEED_WINDOW = 5.0
"""Seconds over which the speed is averaged at least."""
SPEED_SHARE = 0.1
"""The share of the run over which the speed is averaged: in a long run, what is left is steady."""
SPEED_PAUSES = 4
"""As often the longest pause between two frames is the least, too: an agent that learns for seconds
does not step, and unrolls of seconds come whole."""
BAR_WIDTH = 24
"""Characters of a progress bar, where there is room."""
ROOM_FOR_BAR = 72
"""Columns of a terminal from which on there are bars: the numbers come first."""

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
OVER = (Phase.DONE, Phase.FAILED, Phase.STOPPED)

STOPPING = "saving, then stopping; Ctrl-C again ends at once"
CLOSING = "comparing with the Random agent, drawing the graphs"


class Speed:
    """Frames per second of a running Session, lately."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._began: float | None = None
        self._longest_pause = 0.0

    def update(self, frame: int, now: float) -> float | None:
        """Takes in the clock; None until there are frames to count.

        Seconds without a frame count too; but not those since the last frames, as long as the next
        are not overdue.
        """
        if self._began is None:
            self._began = now
        if self._seen:
            self._longest_pause = max(self._longest_pause, now - self._seen[-1][0])
        if not self._seen or frame != self._seen[-1][1]:
            self._seen.append((now, frame))
        lately = max(
            SPEED_WINDOW, SPEED_SHARE * (now - self._began), SPEED_PAUSES * self._longest_pause
        )
        while len(self._seen) > 2 and self._seen[1][0] < now - lately:
            self._seen.popleft()
        (before, first), (last, _) = self._seen[0], self._seen[-1]
        if frame == first:
            return None
        pause = (last - before) / (len(self._seen) - 1)
        return (frame - first) / (max(last, now - pause) - before)


class LiveDisplay:
    """Shows a Board until it is left; `update` is called a few times a second.

    The Sessions of one training share its budget of `max_frame` frames, and where there are several
    trainings, one runs after the other. Of actors and a learner only what the learner has learned
    from is of the budget.
    """

    def __init__(self, console: Console, meta: MetaSpec, max_frame: int) -> None:
        num_sessions = meta.num_sessions
        self._console = console
        self._trainings = meta.trainings
        self._max_frame = max_frame
        self._roles = [role(meta, session) for session in range(num_sessions)]
        self._acts = [meta.is_actor(session) for session in range(num_sessions)]
        self._in_crews = meta.sessions_per_training > 1
        self._together = self._in_crews and not any(self._acts)
        self._speeds = [Speed() for _ in range(num_sessions)]
        self._said: list[tuple[float, Phase]] = [(0.0, Phase.WAITING)] * num_sessions
        self._reasons: dict[int, str] = {}
        self._note = ""
        self._table = Table.grid()
        self._screen = Screen(console, refresh_per_second=5)

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._screen.show(self._table)
        self._screen.__exit__(exc_type, exc, traceback)

    def update(self, board: Board) -> None:
        """Shows how things stand."""
        now = time.monotonic()
        self._say_reasons(board.reasons)
        sessions = [board.read(i) for i in range(len(self._speeds))]
        speeds = [
            speed.update(progress.frame, now) if progress.phase is Phase.RUNNING else None
            for speed, progress in zip(self._speeds, sessions, strict=True)
        ]
        note = STOPPING if board.stop_requested else ""
        if all(progress.phase in OVER for progress in sessions):
            note = CLOSING
        if self._screen.is_live:
            self._table = self._draw(sessions, speeds)
            flow = self._flow_text(board, sessions)
            self._screen.show(Group(self._table, Text(flow, "dim"), Text(note, style="yellow")))
        else:
            for index, (progress, speed) in enumerate(zip(sessions, speeds, strict=True)):
                self._log(index, progress, speed, now, flow_text(board.flow(index)))
            if note and note != self._note:
                self._say(note)
        self._note = note

    def _draw(self, sessions: list[SessionProgress], speeds: list[float | None]) -> Table:
        with_bar = self._console.width >= ROOM_FOR_BAR
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        if with_bar:
            table.add_column(max_width=BAR_WIDTH)
        frames = len(self._frames(self._max_frame))
        for width in (frames, 8, 7, 7, 7):  # so that nothing moves when a number grows
            table.add_column(justify="right", no_wrap=True, min_width=width)
        number_of_run, shown = self._current(sessions)
        names = ("frames", "frames/s", "return", "best", "left")
        header = (number_of_run, *([""] if with_bar else []), *names)
        table.add_row(*(Text(name, style="dim") for name in header))
        for index in shown:
            table.add_row(*self._row(index, sessions[index], speeds[index], with_bar))
        if self._together:
            total, together = self._sum(sessions[shown.start : shown.stop], speeds)
            table.add_row(
                "together",
                *([ProgressBar(self._max_frame, total)] if with_bar else []),
                self._frames(total),
                number(together, ",.0f"),
                "",
                "",
                self._left(total, together),
            )
        return table

    def _row(
        self, index: int, progress: SessionProgress, speed: float | None, with_bar: bool
    ) -> list[RenderableType]:
        """The cells of a Session; actors have no part of the budget and no returns to show."""
        acts, frame = self._acts[index], progress.frame
        word, style = PHASES[progress.phase]
        bar = "" if acts else ProgressBar(self._max_frame, frame)
        return [
            f"{self._roles[index] or f'Session {index}'}{restarted(progress)}",
            *([bar] if with_bar else []),
            f"{frame:,}" if acts else self._frames(frame),
            number(speed, ",.0f") if progress.phase is Phase.RUNNING else "",
            "" if acts else significant(progress.recent_return),
            "" if acts else significant(progress.best),
            Text(word, style=style) if word else "" if acts else self._left_alone(frame, speed),
        ]

    def _current(self, sessions: list[SessionProgress]) -> tuple[str, range]:
        """The Sessions to show: of several trainings by workers the one that came last."""
        if not self._in_crews or len(self._trainings) == 1:
            return "", range(len(sessions))
        last = 0
        for run, workers in enumerate(self._trainings):
            if any(sessions[s].frame or sessions[s].phase in BUSY for s in workers):
                last = run
        return f"run {last + 1} of {len(self._trainings)}", self._trainings[last]

    def _sum(
        self, sessions: list[SessionProgress], speeds: list[float | None]
    ) -> tuple[int, float | None]:
        """Frames of all, and what runs makes in a second."""
        known = [speed for speed in speeds if speed is not None]
        return sum(each.frame for each in sessions), sum(known) if known else None

    def _flow_text(self, board: Board, sessions: list[SessionProgress]) -> str:
        """Of the learner that is shown, if there is one."""
        _, shown = self._current(sessions)
        return flow_text(board.flow(shown.start))

    def _log(
        self, index: int, progress: SessionProgress, speed: float | None, now: float, flow: str
    ) -> None:
        """A line now and then, and at every turn."""
        when, phase = self._said[index]
        running = progress.phase is Phase.RUNNING
        if progress.phase is phase and (not running or now - when < LOG_INTERVAL):
            return
        self._said[index] = (now, progress.phase)
        if progress.phase in TO_BEGIN:
            return
        if running and progress.phase is not phase:
            self._say(f"{self._log_name(index)}: started")
            return
        word, _ = PHASES[progress.phase]
        frame, acts = progress.frame, self._acts[index]
        known = [f"{f'{frame:,}' if acts else self._frames(frame)} frames"]
        if running and speed is not None:
            known.append(f"{speed:,.0f} frames/s")
        if not acts and progress.recent_return is not None:
            known.append(f"return {significant(progress.recent_return)}")
        if not acts and progress.best is not None:
            known.append(f"best {significant(progress.best)}")
        if word:
            known.append(word)
        elif not acts and not self._together and speed:
            known.append(f"{self._left(frame, speed)} left")
        self._say(
            f"{self._log_name(index)}: {', '.join(known)}"
            + (f"; {flow}" if flow and running else "")
            + restarted(progress)
        )

    def _say_reasons(self, reasons: Mapping[int, str]) -> None:
        """Why a Session has failed, or had to be restarted, as soon as it is known."""
        for session, why in reasons.items():
            if self._reasons.get(session) != why:
                self._reasons[session] = why
                say(self._console, Text(f"{self._log_name(session)}: {headline(why)}", "red"))

    def _log_name(self, index: int) -> str:
        """In a log, which shows no header, with the run that a role is of."""
        part = self._roles[index]
        if part is None:
            return f"Session {index}"
        run = index // len(self._trainings[0]) + 1
        return f"{part} of run {run}" if len(self._trainings) > 1 else part

    def _say(self, line: str) -> None:
        say(self._console, line)

    def _frames(self, frame: int) -> str:
        return f"{frame:,} / {short(self._max_frame)}"

    def _left_alone(self, frame: int, speed: float | None) -> str:
        return "" if self._together else self._left(frame, speed)

    def _left(self, frame: int, speed: float | None) -> str:
        if not speed:
            return "–"
        minutes, seconds = divmod(max(int((self._max_frame - frame) / speed), 0), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def flow_text(flow: Flow | None) -> str:
    """Which side of actors and learner is the bottleneck; empty where nothing is known."""
    if flow is None:
        return ""
    known = {
        name: None if math.isnan(value) else value
        for name, value in zip(flow._fields, flow, strict=True)
    }
    return (
        f"EPS {number(known['eps'], ',.1f')}, policy lag {number(known['policy_lag'], '.1f')}, "
        f"actors wait {number(known['actor_wait_share'], '.0%')} and the learner "
        f"{number(known['learner_wait_share'], '.0%')} of their time"
    )


def restarted(progress: SessionProgress) -> str:
    """How often, if ever."""
    return f" (restarted {progress.restarts}×)" if progress.restarts else ""


def number(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else format(value, form)


def short(count: int) -> str:
    """A round number with its unit, as 200k or 1.5M; any other in full."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size and count % (size // 100) == 0:
            return f"{count / size:g}{unit}"
    return f"{count:,}"
