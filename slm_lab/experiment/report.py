"""What a Trial's parent makes of the rows that its Sessions write: metrics, graphs, events.

Importing this module takes pandas, so the parent does it when there is something to report.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, final

import pandas as pd

from slm_lab.analysis.atomic import write_atomically
from slm_lab.analysis.load import load_session_df
from slm_lab.analysis.metrics import TrialMetrics, session_metrics, trial_metrics
from slm_lab.analysis.session_graph import draw_session_graphs
from slm_lab.analysis.trial_graph import draw_trial_eval_graph, draw_trial_graphs
from slm_lab.experiment.result import Ending, SessionResult, TrialResult
from slm_lab.experiment.run_dir import RunDir
from slm_lab.metrics.tensorboard import TensorBoardExporter
from slm_lab.spec.schema.spec import Spec

logger = logging.getLogger(__name__)


@final
class Reporter:
    """Draws while a Trial runs, and writes its metrics and all graphs when it has ended."""

    def __init__(self, spec: Spec, run_dir: RunDir, trial: int) -> None:
        self._spec = spec
        self._run_dir = run_dir
        self._trial = trial
        self._title = f"{spec.name} on {spec.env.name}"
        self._paths = [run_dir.session(trial, s) for s in range(spec.meta.max_session)]
        self._exporters = [TensorBoardExporter(p.rows, p.tensorboard) for p in self._paths]
        self._exporters += [
            TensorBoardExporter(p.eval_rows, p.eval_tensorboard) for p in self._paths
        ]

    def draw_live(self) -> None:
        """The main graphs of what has been written so far."""
        self._draw("live")

    def finish(self, sessions: Sequence[SessionResult], random_return: float | None) -> TrialResult:
        """Metrics of the Sessions that did not fail, graphs of all.

        A disk that takes no more of them hides neither the metrics nor what the Sessions reported.
        """
        whole = [s.session for s in sessions if s.ending is not Ending.FAILED]
        rows = {s: self._paths[s].rows for s in whole if self._paths[s].rows.exists()}
        frames = {s: load_session_df(path) for s, path in rows.items()}
        metrics = trial_metrics(list(frames.values()), random_return)
        try:
            self._write_metrics(sessions, frames, metrics, random_return)
            graphs = self._draw("all")
            self._draw_sessions(list(frames))
        except OSError as error:
            where = error.filename or self._run_dir.root
            problem = f"cannot write metrics and graphs: {error.strerror or error}: {where}"
            return TrialResult(tuple(sessions), metrics, (), problem)
        return TrialResult(tuple(sessions), metrics, tuple(graphs))

    def _draw(self, which: Literal["all", "live"]) -> list[Path]:
        """The Trial's graphs; a full disk must not end the training."""
        try:
            for exporter in self._exporters:
                exporter.update()
            root, prefix = self._run_dir.root, self._run_dir.trial_prefix(self._trial)
            rows = [paths.rows for paths in self._paths]
            eval_rows = [paths.eval_rows for paths in self._paths]
            graphs = draw_trial_graphs(root, rows, prefix, self._title, which=which)
            return graphs + draw_trial_eval_graph(root, eval_rows, prefix, self._title)
        except OSError as error:
            logger.error("cannot draw the graphs: %s", error)
            return []

    def _draw_sessions(self, sessions: Sequence[int]) -> None:
        for session in sessions:
            paths = self._paths[session]
            title = f"{self._title}, Session {session}"
            draw_session_graphs(paths.graphs, paths.rows, paths.prefix, title, paths.eval_rows)
        for exporter in self._exporters:
            exporter.close()

    def _write_metrics(
        self,
        sessions: Sequence[SessionResult],
        frames: Mapping[int, pd.DataFrame],
        metrics: TrialMetrics,
        random_return: float | None,
    ) -> None:
        for session, df in frames.items():
            paths = self._paths[session]
            _write_json(paths.metrics, session_metrics(df, random_return).to_json())
            if paths.eval_rows.exists():
                eval_df = load_session_df(paths.eval_rows)
                _write_json(paths.eval_metrics, session_metrics(eval_df, random_return).to_json())
        summary = {
            **metrics.to_json(),
            "max_session": self._spec.meta.max_session,
            "sessions": [vars(session) for session in sessions],
        }
        file = self._run_dir.trial_metrics_file(self._trial)
        for path in (file, self._run_dir.root / "info" / file.name):
            _write_json(path, summary)


def _write_json(path: Path, content: object) -> None:
    write_atomically(path, json.dumps(content, indent=2).encode() + b"\n")
