"""What a run shows while it trains: one live line per Session, or log lines without a terminal."""

import time
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slm_lab.experiment.progress import Board, Phase, SessionProgress

LOG_INTERVAL = 5.0
"""Seconds between two plain log lines of one Session."""
SPEED_WINDOW = 5.0
"""Seconds over which the speed is averaged."""

PHASES = {
    Phase.WAITING: ("waits for a free core", "dim"),
    Phase.STARTING: ("starts", "dim"),
    Phase.RUNNING: ("", ""),
    Phase.DONE: ("done", "green"),
    Phase.FAILED: ("failed", "bold red"),
    Phase.STOPPED: ("stopped, saved", "yellow"),
}


class Speed:
    """Frames per second over the last few seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, frame: int) -> float | None:
        """Takes in the clock; None until there is something to compare with."""
        now = time.monotonic()
        if self._seen and frame <= self._seen[-1][1]:
            self._drop(now)
        else:
            if not self._seen and frame == 0:
                return None
            self._seen.append((now, frame))
            self._drop(now)
        (before, first), (last, latest) = self._seen[0], self._seen[-1]
        return (latest - first) / (last - before) if last > before else None

    def _drop(self, now: float) -> None:
        while len(self._seen) > 2 and now - self._seen[0][0] > SPEED_WINDOW:
            self._seen.popleft()


class LiveDisplay:
    """Shows a Board until it is left; `update` is called a few times a second."""

    def __init__(self, console: Console, num_sessions: int, max_frame: int) -> None:
        self._console = console
        self._num_sessions = num_sessions
        self._max_frame = max_frame
        self._speeds = [Speed() for _ in range(num_sessions)]
        self._said: list[tuple[float, Phase]] = [(0.0, Phase.WAITING)] * num_sessions
        self._live = (
            Live(console=console, refresh_per_second=5, transient=False)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, board: Board) -> None:
        """Shows how things stand."""
        sessions = [board.read(i) for i in range(self._num_sessions)]
        speeds = [s.update(p.frame) for s, p in zip(self._speeds, sessions, strict=True)]
        if self._live is not None:
            self._live.update(self._table(sessions, speeds, board.stop_requested))
        else:
            for index, (progress, speed) in enumerate(zip(sessions, speeds, strict=True)):
                self._log(index, progress, speed)

    def _table(
        self, sessions: list[SessionProgress], speeds: list[float | None], stopping: bool
    ) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(width=24)
        for _ in range(5):
            table.add_column(justify="right", no_wrap=True)
        names = ("frames", "frames/s", "return", "best", "left")
        table.add_row("", "", *(Text(name, style="dim") for name in names))
        for index, (progress, speed) in enumerate(zip(sessions, speeds, strict=True)):
            word, style = PHASES[progress.phase]
            running = progress.phase is Phase.RUNNING
            table.add_row(
                f"Session {index}",
                ProgressBar(self._max_frame, progress.frame, width=24),
                f"{progress.frame:,} / {self._max_frame:,}",
                number(speed, ",.0f") if running else "",
                number(progress.total_reward_ma, ".1f"),
                number(progress.best, ".1f"),
                self._left(progress.frame, speed) if running else Text(word, style=style),
            )
        if stopping:
            table.add_row("", Text("saving, then stopping", style="yellow"))
        return table

    def _log(self, index: int, progress: SessionProgress, speed: float | None) -> None:
        """A line now and then, and at every turn."""
        when, phase = self._said[index]
        now = time.monotonic()
        if progress.phase is phase and (
            progress.phase is not Phase.RUNNING or now - when < LOG_INTERVAL
        ):
            return
        self._said[index] = (now, progress.phase)
        if progress.phase in (Phase.WAITING, Phase.STARTING):
            return
        if progress.phase is not phase and progress.phase is Phase.RUNNING:
            self._console.print(f"Session {index}: started", highlight=False)
            return
        word, _ = PHASES[progress.phase]
        self._console.print(
            f"Session {index}: {progress.frame:,} / {self._max_frame:,} frames"
            f", {number(speed, ',.0f')} frames/s"
            f", return {number(progress.total_reward_ma, '.1f')}"
            f", best {number(progress.best, '.1f')}"
            f", {word or self._left(progress.frame, speed) + ' left'}",
            highlight=False,
            soft_wrap=True,
        )

    def _left(self, frame: int, speed: float | None) -> str:
        if not speed:
            return "–"
        seconds = int((self._max_frame - frame) / speed)
        minutes, seconds = divmod(max(seconds, 0), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def number(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else format(value, form)
