"""What a search has found so far, as the analysis takes it: the table and the graphs."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from statistics import pstdev

import numpy as np

from slm_lab.analysis.atomic import write_atomically
from slm_lab.analysis.experiment import (
    Experiment,
    TrialOutcome,
    Variable,
    ranked,
    write_experiment_df,
)
from slm_lab.analysis.experiment_graph import draw_experiment_graph
from slm_lab.analysis.metrics import TRIAL_METRICS, trial_metrics
from slm_lab.analysis.multi_trial_graph import draw_multi_trial_graphs
from slm_lab.experiment.baseline import known_random_return
from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.search.record import Standing, TrialState
from slm_lab.metrics.reader import Rows, read_rows
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import LISTS, dimensions


def outcome(its: TrialState) -> TrialOutcome:
    """A trial as it stands."""
    return TrialOutcome(
        its.trial,
        its.status,
        its.point,
        its.frame,
        its.seconds,
        its.score,
        its.metrics,
        its.error,
        its.restarts,
    )


def best_first(standing: Standing) -> list[TrialState]:
    """The trials as `ranked` has them."""
    trials = standing.trials
    return [trials[each.trial] for each in ranked(map(outcome, trials.values()))]


def experiment(spec: Spec, standing: Standing) -> Experiment:
    """Everything that is known so far."""
    return Experiment(
        spec.name,
        f"{spec.agent.algorithm.name} on {spec.env.name}",
        tuple(
            Variable(each.path, each.sampler, tuple(each.args) if each.sampler in LISTS else ())
            for each in dimensions(spec.search or {})
        ),
        tuple(outcome(its) for its in standing.trials.values()),
        spec.env.max_frame,
    )


def metrics_at(
    run_dir: RunDir, trial: int, spec: Spec, frame: int, chance_file: Path
) -> Mapping[str, float | None]:
    """The metrics of a trial as they were at `frame` of its budget, whatever it did after that."""
    files = {session: run_dir.session(trial, session).rows for session in spec.meta.writers}
    rows = [_until(read_rows(file), frame) for file in files.values() if file.exists()]
    found = trial_metrics(rows, known_random_return(chance_file, spec.env))
    return {name: getattr(found, name) for name in TRIAL_METRICS}


def _until(rows: Rows, frame: int) -> Rows:
    count = int(np.searchsorted(rows["total_frame"], frame, side="right"))
    return Rows(rows.columns, rows.values[:, :count].copy())


def write_confirmed(run_dir: RunDir, standing: Standing) -> list[Path]:
    """A line for each spec that was run again, the best first; no file where none was.

    Raises OSError.
    """
    if not standing.confirmed:
        return []
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(("trial", "search_score", "confirmed_mean", "confirmed_std", "seeds", "scores"))
    for found in standing.results:
        scores = found.scores
        std = pstdev(scores) if scores else None
        every = " ".join(map(str, scores))
        score = standing.trials[found.trial].score
        table.writerow((found.trial, score, found.mean, std, len(scores), every))
    path = run_dir.root / f"{run_dir.prefix}_confirmed.csv"
    write_atomically(path, buffer.getvalue().encode())
    return [path]


def draw(spec: Spec, run_dir: RunDir, standing: Standing) -> list[Path]:
    """Writes the table and the graphs; returns the paths, the graph of all metrics first.

    Raises OSError.
    """
    found = experiment(spec, standing)
    table = run_dir.root / f"{run_dir.prefix}_experiment_df.csv"
    write_experiment_df(table, found)
    paths = draw_experiment_graph(found, run_dir.root, run_dir.prefix)
    meta = spec.meta
    training_of = {s: n for n, crew in enumerate(meta.trainings) for s in crew}
    rows: dict[int, list[Rows]] = {}
    run_of: dict[int, list[int] | None] = {}
    for trial in standing.trials:
        files = {s: run_dir.session(trial, s).rows for s in meta.writers}
        there = {s: read_rows(file) for s, file in files.items() if file.exists()}
        rows[trial] = list(there.values())
        run_of[trial] = [training_of[s] for s in there] if meta.max_run > 1 else None
    title = f"{spec.name} on {spec.env.name}"
    paths += draw_multi_trial_graphs(
        rows, found.outcomes, run_of, run_dir.root, run_dir.prefix, title
    )
    return [*paths, table]
