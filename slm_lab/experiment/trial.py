"""A Trial: the Sessions of one spec, watched by a parent that draws what they write."""

import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

from slm_lab.analysis.atomic import write_atomically
from slm_lab.analysis.load import load_session_df
from slm_lab.analysis.metrics import TrialMetrics, session_metrics, trial_metrics
from slm_lab.analysis.session_graph import draw_session_eval_graph, draw_session_graphs
from slm_lab.analysis.trial_graph import draw_trial_eval_graph, draw_trial_graphs
from slm_lab.experiment.baseline import cached_random_return, measure_main
from slm_lab.experiment.launch.processes import SPAWN, TICK, Processes, end, start
from slm_lab.experiment.manifest import read_manifest
from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.result import Ending, SessionResult, TrialResult
from slm_lab.experiment.run_dir import RunDir, SessionPaths
from slm_lab.experiment.worker import STOP_SIGNALS, SessionTask
from slm_lab.metrics.tensorboard import TensorBoardExporter
from slm_lab.spec.schema.spec import Spec

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

DRAW_INTERVAL = 30.0
"""Seconds between two drawings of the live graphs at least."""
DRAW_SHARE = 0.02
"""The share of the time that drawing may take: long runs are drawn less often."""
BASELINE_SECONDS = 600.0
"""How long the Trial waits at its end for the Random agent's return."""


class Trial:
    """Runs `meta.max_session` Sessions of one spec, each in its own process.

    `on_tick` is called a few times a second with the board that the Sessions write to.
    """

    def __init__(
        self,
        spec: Spec,
        run_dir: RunDir,
        root_seed: int,
        index: int = 0,
        resume: bool = False,
        checked: bool = False,
        imports: tuple[str, ...] = (),
        on_tick: Callable[[Board], None] = lambda board: None,
    ) -> None:
        self.spec = spec
        self.run_dir = run_dir
        self.index = index
        self._root_seed = root_seed
        self._resume = resume
        self._checked = checked
        self._imports = imports
        self._on_tick = on_tick
        self._cache = run_dir.root.parent / "random_returns.json"
        self._last_draw = time.monotonic()
        self._draw_pause = DRAW_INTERVAL
        self._all_paths = [run_dir.session(index, s) for s in range(spec.meta.max_session)]
        self._exporters = [TensorBoardExporter(p.rows, p.tensorboard) for p in self._all_paths]
        self._exporters += [
            TensorBoardExporter(p.eval_rows, p.eval_tensorboard) for p in self._all_paths
        ]
        self.board = Board.allocate(SPAWN, spec.meta.max_session)

    def run(self) -> TrialResult:
        """Trains, then writes metrics and graphs. Ctrl-C saves all Sessions and ends early."""
        with _stop_on_signals(self.board), self._baseline() as random_return:
            sessions = self._run_sessions()
            return self._report(sessions, random_return())

    def _run_sessions(self) -> list[SessionResult]:
        tasks = [self._task(session) for session in range(self.spec.meta.max_session)]
        done = {} if not self._resume else self._finished_before(tasks)
        open_tasks = [task for task in tasks if task.session not in done]
        processes = Processes(open_tasks, self.board, len(os.sched_getaffinity(0)))
        results = processes.run(self._tick)
        return sorted([*done.values(), *results], key=lambda result: result.session)

    def _task(self, session: int) -> SessionTask:
        return SessionTask(
            self.spec,
            self.run_dir,
            self._root_seed,
            self.index,
            session,
            self.spec.meta.max_session,
            self._resume,
            self._checked,
            self._imports,
        )

    def _finished_before(self, tasks: Sequence[SessionTask]) -> dict[int, SessionResult]:
        """The Sessions that had come to their end before the run was resumed."""
        done = {}
        for task in tasks:
            manifest = read_manifest(self._paths(task.session).manifest)
            if manifest and manifest.finished and manifest.frame >= self.spec.env.max_frame:
                done[task.session] = SessionResult(task.session, Ending.FINISHED, manifest.frame)
                self.board.clock_slots[task.session] = manifest.frame
                self.board.write(task.session, phase=Phase.DONE)
        return done

    def _tick(self) -> None:
        self._on_tick(self.board)
        if time.monotonic() - self._last_draw >= self._draw_pause:
            began = time.monotonic()
            self._draw("live")
            self._last_draw = time.monotonic()
            self._draw_pause = max(DRAW_INTERVAL, (self._last_draw - began) / DRAW_SHARE)

    def _draw(self, which: Literal["all", "live"]) -> list[Path]:
        """The graphs of what has been written so far; a full disk must not end the training."""
        try:
            for exporter in self._exporters:
                exporter.update()
            root, prefix = self.run_dir.root, self.run_dir.trial_prefix(self.index)
            rows = [paths.rows for paths in self._all_paths]
            eval_rows = [paths.eval_rows for paths in self._all_paths]
            graphs = draw_trial_graphs(root, rows, prefix, self._title(), which=which)
            return graphs + draw_trial_eval_graph(root, eval_rows, prefix, self._title())
        except OSError as error:
            logger.error("cannot draw the graphs: %s", error)
            return []

    def _report(
        self, sessions: Sequence[SessionResult], random_return: float | None
    ) -> TrialResult:
        """Metrics of the Sessions that did not fail, graphs of all.

        A disk that takes no more of them hides neither the metrics nor what the Sessions reported.
        """
        whole = [s.session for s in sessions if s.ending is not Ending.FAILED]
        frames = {s: load_session_df(self._paths(s).rows) for s in whole if self._has_rows(s)}
        metrics = trial_metrics(list(frames.values()), random_return)
        try:
            self._write_metrics(sessions, frames, metrics, random_return)
            graphs = self._draw_at_end(list(frames))
        except OSError as error:
            where = error.filename or self.run_dir.root
            problem = f"cannot write metrics and graphs: {error.strerror or error}: {where}"
            return TrialResult(tuple(sessions), metrics, (), problem)
        return TrialResult(tuple(sessions), metrics, tuple(graphs))

    def _write_metrics(
        self,
        sessions: Sequence[SessionResult],
        frames: Mapping[int, "pd.DataFrame"],
        metrics: TrialMetrics,
        random_return: float | None,
    ) -> None:
        for session, df in frames.items():
            content = session_metrics(df, random_return).to_json()
            paths = self._paths(session)
            _write_json(paths.metrics, content)
            if paths.eval_rows.exists():
                eval_df = load_session_df(paths.eval_rows)
                _write_json(paths.eval_metrics, session_metrics(eval_df, random_return).to_json())
        summary = {
            **metrics.to_json(),
            "max_session": self.spec.meta.max_session,
            "sessions": [vars(session) for session in sessions],
        }
        file = self.run_dir.trial_metrics_file(self.index)
        for path in (file, self.run_dir.root / "info" / file.name):
            _write_json(path, summary)

    def _draw_at_end(self, sessions: Sequence[int]) -> list[Path]:
        graphs = self._draw("all")
        for session in sessions:
            paths = self._paths(session)
            title = f"{self._title()}, Session {session}"
            draw_session_graphs(paths.graphs, paths.rows, paths.prefix, title)
            if paths.eval_rows.exists():
                draw_session_eval_graph(paths.graphs, paths.eval_rows, paths.prefix, title)
        for exporter in self._exporters:
            exporter.close()
        return graphs

    def _has_rows(self, session: int) -> bool:
        return self._paths(session).rows.exists()

    def _paths(self, session: int) -> SessionPaths:
        return self._all_paths[session]

    def _title(self) -> str:
        return f"{self.spec.name} on {self.spec.env.name}"

    @contextmanager
    def _baseline(self) -> Iterator[Callable[[], float | None]]:
        """Measures the Random agent's return beside the training, if it is not known yet."""
        known = cached_random_return(self._cache, self.spec.env)
        if known is not None:
            yield lambda: known
            return
        process = SPAWN.Process(
            target=measure_main,
            args=(self._cache, self.spec.env, self._imports, os.getpid()),
            name="random-baseline",
        )

        def result() -> float | None:
            deadline = time.monotonic() + BASELINE_SECONDS
            while process.is_alive() and time.monotonic() < deadline:
                if self.board.stop_requested:
                    break
                self._on_tick(self.board)
                process.join(TICK)
            return cached_random_return(self._cache, self.spec.env)

        try:
            start(process)
            yield result
        finally:
            end(process)


@contextmanager
def _stop_on_signals(board: Board) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the Sessions to save and end; a second one ends at once."""
    asked = False  # not the board's flag: a Session that got the same signal may have set it

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            for each in STOP_SIGNALS:  # a third one must not interrupt the clearing up
                signal.signal(each, signal.SIG_IGN)
            raise KeyboardInterrupt
        asked = True
        board.request_stop()

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_json(path: Path, content: object) -> None:
    write_atomically(path, json.dumps(content, indent=2).encode() + b"\n")
