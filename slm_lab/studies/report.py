"""Turns the rows of a Trial's Sessions into metrics, graphs and TensorBoard events."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal, final

from slm_lab.charts.session import draw_session_graphs
from slm_lab.charts.trial import draw_trial_graphs
from slm_lab.core.files import write_json
from slm_lab.metrics.reader import NO_ROWS, Rows, read_existing
from slm_lab.metrics.tensorboard import TensorBoardExporter
from slm_lab.metrics.trial_metrics import session_metrics, throughput, trial_metrics
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.result import Ending, SessionResult, TrialResult, never_began
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.baseline import RandomReturn
from slm_lab.studies.requirements import missing_events_reason

logger = logging.getLogger(__name__)


@final
class Reporter:
    """Draws live graphs while a Trial runs, and writes its metrics and graphs at the
    end. For a Trial that is `one_of_many` it draws only the main graphs, into the
    folder of graphs."""

    def __init__(
        self, spec: Spec, run_dir: RunDir, trial: int, one_of_many: bool = False
    ) -> None:
        self._spec = spec
        self._run_dir = run_dir
        self._trial = trial
        self._one_of_many = one_of_many
        self._last: Literal["all", "live"] = "live" if one_of_many else "all"
        """The graphs that are drawn at the end."""
        self._folder = run_dir.session(trial, 0).graphs if one_of_many else run_dir.root
        self._title = f"{spec.name} on {spec.env.name}"
        if spec.meta.simulate is not None:
            self._title += ", virtual time"
        self._paths = {s: run_dir.session(trial, s) for s in spec.meta.writers}
        paths = self._paths.values() if missing_events_reason() is None else ()
        self._exporters = [TensorBoardExporter(p.rows, p.tensorboard) for p in paths]
        self._exporters += [
            TensorBoardExporter(p.eval_rows, p.eval_tensorboard) for p in paths
        ]

    def draw_live(self) -> None:
        """Draws the main graphs of the rows so far. A full disk only logs an error."""
        try:
            self._draw("live", *self._read(), is_stopped=lambda: False)
        except OSError as error:
            logger.error("cannot draw the graphs: %s", error)

    def finish(
        self,
        sessions: Sequence[SessionResult],
        random: RandomReturn,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> TrialResult:
        """Writes metrics of the Sessions that did not fail, and graphs of all Sessions.
        If all failed, the Trial's metrics file of an earlier training is kept. If no
        Session ever began, no graphs are drawn. No graph is begun once `is_stopped`. On
        a full disk the result still has the metrics and the Sessions' results, with the
        error as its `problem`."""
        rows, evaluations = self._read()
        failures = [s for s in sessions if s.ending is Ending.FAILED]
        # A Session that ended only because it lost its peers has complete rows.
        failed = {s.session for s in failures if not s.lost_others}
        whole = {
            session: session_rows
            for session, session_rows in rows.items()
            if session not in failed
        }
        every = list(whole.values())
        meta = self._spec.meta
        trainings = [session // meta.sessions_per_training for session in whole]
        result = TrialResult(
            sessions=tuple(sessions),
            metrics=trial_metrics(every, random.mean, meta.runs_of(whole), random.why),
            throughput=throughput(every, trainings),
            graphs=(),
        )
        has_begun = not never_began(sessions)
        graphs: list[Path] = []
        try:
            with ExitStack() as closed_at_the_end:
                for exporter in self._exporters:
                    closed_at_the_end.callback(exporter.close)
                self._write_session_metrics(whole, evaluations, random)
                if whole or not self._run_dir.trial_metrics_file(self._trial).exists():
                    self._write_metrics(result, random)
                if has_begun:
                    graphs = self._draw(self._last, rows, evaluations, is_stopped)
                if not self._one_of_many:
                    self._draw_sessions(whole, evaluations, is_stopped)
        except OSError as error:
            where = error.filename or self._run_dir.root
            problem = (
                f"cannot write metrics and graphs: {error.strerror or error}: {where}"
            )
            return replace(result, problem=problem)
        lacks_graphs = is_stopped() and has_begun
        return replace(result, graphs=tuple(graphs), lacks_graphs=lacks_graphs)

    def _write_session_metrics(
        self,
        rows: Mapping[int, Rows],
        evaluations: Mapping[int, Rows],
        random: RandomReturn,
    ) -> None:
        for session, paths in self._paths.items():
            files = [(rows, paths.metrics), (evaluations, paths.eval_metrics)]
            for source, file in files:
                if session in rows and session in source:
                    metrics = session_metrics(source[session], random.mean, random.why)
                    write_json(file, asdict(metrics))

    def _write_metrics(self, result: TrialResult, random: RandomReturn) -> None:
        meta = self._spec.meta
        summary = {
            **asdict(result.metrics),
            "random_return_episodes": random.episodes,
            "random_episode_length": random.episode_length,
            "throughput": result.throughput._asdict(),
            "max_session": meta.max_session,
            "max_run": meta.max_run,
            "virtual_time": meta.simulate is not None,
            "sessions": [vars(session) for session in result.sessions],
        }
        file = self._run_dir.trial_metrics_file(self._trial)
        for path in (file, self._run_dir.root / "info" / file.name):
            write_json(path, summary)

    def _draw_sessions(
        self,
        rows: Mapping[int, Rows],
        evaluations: Mapping[int, Rows],
        is_stopped: Callable[[], bool],
    ) -> None:
        for session, session_rows in rows.items():
            if is_stopped():
                return
            paths = self._paths[session]
            draw_session_graphs(
                graph_dir=paths.graphs,
                rows=session_rows,
                evaluations=evaluations.get(session, NO_ROWS),
                prefix=paths.prefix,
                title=f"{self._title}, Session {session}",
                scripts=self._run_dir.root.parent,
            )

    def _read(self) -> tuple[dict[int, Rows], dict[int, Rows]]:
        rows = read_existing(
            {session: paths.rows for session, paths in self._paths.items()}
        )
        played = {session: paths.eval_rows for session, paths in self._paths.items()}
        return rows, read_existing(played)

    def _draw(
        self,
        which: Literal["all", "live"],
        rows: Mapping[int, Rows],
        evaluations: Mapping[int, Rows],
        is_stopped: Callable[[], bool],
    ) -> list[Path]:
        for exporter in self._exporters:
            exporter.update()
        return draw_trial_graphs(
            out_dir=self._folder,
            rows=[rows.get(session, NO_ROWS) for session in self._paths],
            evaluations=[evaluations.get(session, NO_ROWS) for session in self._paths],
            prefix=self._run_dir.trial_prefix(self._trial),
            title=self._title,
            which=which,
            run_of=self._spec.meta.runs_of(self._paths),
            scripts=self._run_dir.root.parent,
            is_stopped=is_stopped,
        )
