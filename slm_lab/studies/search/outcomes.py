"""Reads reports and results of a search for the scheduler and the graphs; writes table
and graphs."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from slm_lab.charts.multi_trial import draw_multi_trial_graphs
from slm_lab.charts.search import draw_experiment_graph
from slm_lab.charts.search_summary import SearchSummary, experiment_table
from slm_lab.core.files import write_atomically
from slm_lab.core.recorded import value_at
from slm_lab.metrics.reader import RowFile, Rows, read_existing
from slm_lab.metrics.trial_metrics import TRIAL_METRICS, trial_metrics
from slm_lab.records.event_log import StudyState
from slm_lab.records.run_record import RunRecord
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import dimensions
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.baseline import RANDOM_RETURNS_FILE, known_random_return

logger = logging.getLogger(__name__)


def metrics_at(
    run_dir: RunDir, trial: int, spec: Spec, frame: int
) -> Mapping[str, float | None]:
    """The metrics of a trial from its rows with `total_frame` up to `frame`."""
    files = {
        session: run_dir.session(trial, session).rows for session in spec.meta.writers
    }
    rows = [
        Rows(table.columns, table.values[:, table["total_frame"] <= frame])
        for table in read_existing(files).values()
    ]
    cache = run_dir.root.parent / RANDOM_RETURNS_FILE
    metrics = trial_metrics(rows, known_random_return(cache, spec.env).mean)
    return {name: getattr(metrics, name) for name in TRIAL_METRICS}


def draw(
    spec: Spec,
    run_dir: RunDir,
    study_state: StudyState,
    is_stopped: Callable[[], bool],
) -> list[Path]:
    """Writes the table and the graphs. Returns their paths, the graph of all metrics
    first. No graph is begun once `is_stopped`. Raises OSError."""
    study = _found(spec.name, spec.to_json(), study_state)
    table = run_dir.trials_table
    write_atomically(table, experiment_table(study).to_csv(index=False).encode())
    if is_stopped():
        return [table]
    paths = draw_experiment_graph(study, run_dir.root, run_dir.prefix)
    if is_stopped():
        return [*paths, table]
    rows: dict[int, list[Rows]] = {}
    run_of: dict[int, list[int] | None] = {}
    search = RunRecord(run_dir)
    for number, state in study_state.trials.items():
        if state.has_begun:
            trial = search.trial_at(number)
            readable = trial.readable_rows()
            for problem in readable.problems:
                logger.warning("the graphs leave rows out: %s", problem)
            rows[number] = list(readable.rows.values())
            run_of[number] = trial.meta.runs_of(readable.rows)
    title = f"{spec.name} on {spec.env.name}"
    folder = run_dir.root
    prefix = run_dir.prefix
    paths += draw_multi_trial_graphs(
        rows=rows,
        trials=study.trials,
        run_of=run_of,
        folder=folder,
        prefix=prefix,
        title=title,
    )
    return [*paths, table]


def summarise(search: RunRecord) -> SearchSummary:
    """What a search has found so far. Raises UsageError for a damaged event log,
    SpecError for a damaged spec."""
    return _found(search.name, search.spec, search.study_state)


def _found(
    name: str, spec: Mapping[str, Any], study_state: StudyState
) -> SearchSummary:
    algorithm, env = (
        value_at(spec, key, "?") for key in ("agent.algorithm.name", "env.name")
    )
    searched = tuple(dimensions(value_at(spec, "search", {})))
    trials = tuple(study_state.trials.values())
    max_frame = value_at(spec, "env.max_frame", 0)
    return SearchSummary(
        name=name,
        title=f"{algorithm} on {env}",
        variables=searched,
        trials=trials,
        max_frame=max_frame,
    )


def reports(rows: Sequence[Rows]) -> list[tuple[int, float]]:
    """Frame and score for each row index that every Session has written. The frame is
    `total_frame`, so that trials are compared at equal shares of their budgets. The
    score is the mean of `recent_return`. Rows are skipped while a Session has too few
    episodes."""
    count = min((len(table) for table in rows), default=0)
    if not count:
        return []
    frames = np.max([table["total_frame"][:count] for table in rows], axis=0)
    scores = np.mean([table["recent_return"][:count] for table in rows], axis=0)
    known = np.isfinite(scores)
    return [
        (int(f), float(s)) for f, s in zip(frames[known], scores[known], strict=True)
    ]


@final
class RowWatch:
    """The new reports of a trial, from the rows of its Sessions."""

    def __init__(self, files: Sequence[Path], after: int) -> None:
        self._files = [RowFile(file) for file in files]
        self._rows: list[Rows] = []
        self._last_frame = after

    def poll(self) -> list[tuple[int, float]]:
        """New reports, of frames after the last reported frame."""
        rows = [file.read() for file in self._files]
        if rows == self._rows:  # the same objects
            return []
        self._rows = rows
        new = [report for report in reports(rows) if report[0] > self._last_frame]
        if new:
            self._last_frame, _ = new[-1]
        return new
