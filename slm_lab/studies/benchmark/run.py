"""A benchmark that is run: the trainings of its plan, as many at once as there is room.

It keeps no log. A training that has a result is not run again, and one that has a run
folder is resumed. So the same command continues after any end."""

import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from typing_extensions import override

from slm_lab.charts.axis import RETURNS, TOTAL_FRAMES
from slm_lab.charts.trainings import read_trial
from slm_lab.core.errors import UsageError
from slm_lab.core.recorded import finite, value_at
from slm_lab.core.types import FloatArray
from slm_lab.metrics.lines import Line
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.trial_state import Params, Status, TrialState
from slm_lab.records.event_log import Event, Interrupted
from slm_lab.records.lookup import find_labelled
from slm_lab.records.run_record import RunRecord
from slm_lab.records.run_source import RunSource
from slm_lab.records.training_record import (
    GreedyEpisodes,
    ReturnCurve,
    TrainingEnding,
    TrainingRecord,
    write_record,
)
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.benchmark.plan import (
    BenchmarkPlan,
    PlannedTraining,
    drop_seed,
)
from slm_lab.studies.pool import Pool, Request, request_of, resources_for
from slm_lab.studies.run import PreparedRun
from slm_lab.studies.study import Agenda, Decision, Study
from slm_lab.studies.trial import TrialTask

logger = logging.getLogger(__name__)

POINTS = 120
"""The most points of a curve that are kept."""
DIGITS = 6
"""The significant digits of a point."""
QUIET = 0.5
"""Cores that others may use while a speed is measured."""
ENDINGS: dict[Status, TrainingEnding] = {
    Status.FINISHED: "finished",
    Status.FAILED: "failed",
}
"""How the record of a training says that it ended; other trainings were stopped."""


class _Usage(NamedTuple):
    """How busy the machine has been: the time, and seconds of all its cores."""

    time: float
    busy: float | None


@final
class BenchmarkRun(Agenda):
    """The trainings of a plan that have not finished."""

    def __init__(self, plan: BenchmarkPlan, runs: Path, jobs: int | None) -> None:
        """`runs` is the folder of the run folders, `jobs` the most trainings at once;
        None: one per free core. Raises UsageError if a result cannot be read, or if a
        run folder is one of another spec."""
        super().__init__()
        self.plan = plan
        plan.renew_facts()
        self.trainings = plan.to_train()
        for training in self.trainings:
            _check_begun(training, runs)
        self.num_trials = len(self.trainings)
        self.runs = runs
        self._began: dict[int, _Usage] = {}
        self._with_others: set[int] = set()
        """Trainings that ran beside another one."""
        self.pool = Pool(resources_for((row.spec for row in plan.rows), jobs))
        self.study = Study(self, self.pool)

    @override
    def label(self, trial: int) -> str:
        return self.trainings[trial].label

    def budget(self, trial: int) -> int:
        """The frames of a training."""
        return self.trainings[trial].row.spec.env.max_frame

    @override
    def propose(self, trial: int) -> Params:
        training = self.trainings[trial]
        return {"row": training.row.name, "seed": training.seed}

    @override
    def request(self, state: TrialState) -> Request:
        spec = self.trainings[state.trial].row.spec
        return request_of(spec, spec.meta.search_resources, self.pool.resources.cpus)

    @override
    def task(self, state: TrialState) -> TrialTask:
        training = self.trainings[state.trial]
        cluster = training.row.spec.meta.cluster
        source = replace(
            training.row.source,
            seed=training.seed,
            data_dir=self.runs,
            label=training.label,
        )
        begun = find_labelled(training.label, self.runs)
        if begun is not None:
            source = _source_of(begun, source, cluster)
            source = replace(source, run=str(begun.root), label=None)
            if not self._was_alone_before(training):
                self._with_others.add(state.trial)
        run = PreparedRun(source)
        # the process of the training takes the lock
        run.release()
        if self.pool.running:
            self._with_others |= {state.trial, *self.pool.running}
        self._began[state.trial] = _usage()
        return replace(run.task, final_episodes=self.plan.episodes)

    @override
    def notify(self, event: Event) -> list[Decision]:
        if isinstance(event, Interrupted):
            try:
                self.conclude(self.study_state.trials[event.trial])
            except OSError as error:  # others are still saving
                label = self.trainings[event.trial].label
                logger.error("cannot write the result of %s: %s", label, error)
        return []

    @override
    def conclude(self, state: TrialState) -> None:
        """Writes the result of a training as it stands. Raises OSError."""
        training = self.trainings[state.trial]
        begun = find_labelled(training.label, self.runs)
        facts = {
            **_planned_facts(self.plan.name, training),
            "ending": ENDINGS.get(state.status, "stopped"),
            "error": state.error,
            "is_alone": self._was_alone(state.trial),
        }
        if begun is not None:
            facts |= _measured_facts(RunRecord(begun))
        write_record(self.plan.folder, TrainingRecord(**facts))

    def document(self) -> dict[str, Any]:
        """The results of all trainings so far, as JSON has them."""
        made = [record.model_dump(mode="json") for record in self.plan.records()]
        return {"folder": str(self.plan.folder), "trainings": made}

    def _was_alone_before(self, training: PlannedTraining) -> bool:
        """Whether nothing else ran beside the first part of a training. False if that
        part was killed, and so left no result."""
        stopped = self.plan.kept(training)
        return stopped is not None and stopped.is_alone

    def _was_alone(self, trial: int) -> bool:
        """Whether the machine had nothing else to do: no other training, and at most
        half a core for other programs."""
        began = self._began.get(trial)
        now = _usage()
        if began is None or began.busy is None or now.busy is None:
            return False
        if trial in self._with_others:
            return False
        cores = self.request(self.study_state.trials[trial]).cpu
        busy = (now.busy - began.busy) / (now.time - began.time)
        return busy < cores + QUIET


def _source_of(run: RunDir, source: RunSource, cluster: str | None) -> RunSource:
    """The source of the spec with which a training has begun, on the Ray cluster that
    the suite names."""
    sets = []
    if cluster is not None:
        sets = [f"meta.cluster={cluster}"]
    return replace(
        source,
        spec_file=str(run.spec_file),
        spec_name=run.spec_name,
        sets=tuple(sets),
        seed=None,
    )


def _check_begun(training: PlannedTraining, runs: Path) -> None:
    """Raises UsageError if the training has a run folder of another spec. It would be
    resumed as if it were the suite's."""
    begun = find_labelled(training.label, runs)
    if begun is None:
        return
    row = training.row
    cluster = row.spec.meta.cluster
    spec = _source_of(begun, row.source, cluster).load(warn=False)
    if not row.is_trained_by(spec):
        raise UsageError(
            f"{begun.root} is a run of another spec than the suite's "
            f'"{row.name}" has now: delete it, or name another --runs'
        )


def _planned_facts(suite: str, training: PlannedTraining) -> dict[str, Any]:
    """What a record says of a training before it begins."""
    row = training.row
    spec = row.spec
    return {
        "suite": suite,
        "row": row.name,
        "algorithm": spec.agent.algorithm.name,
        "seed": training.seed,
        "mode": str(spec.meta.distributed).lower(),
        "workers": spec.meta.max_session,
        "is_virtual": spec.meta.simulate is not None,
        "max_frame": spec.env.max_frame,
        "spec": drop_seed(spec),
        **row.facts,
    }


def _measured_facts(run: RunRecord) -> dict[str, Any]:
    """What a record says of a training that has begun, from its run folder. Raises
    UsageError if its rows are damaged."""
    metrics = run.metrics
    origin = run.origin
    facts = {
        "random_return": metrics.get("random_return"),
        "frames_per_second": value_at(metrics, "throughput.frames_per_s"),
        "evaluation": _evaluation(run),
        "started": str(origin.get("started", "")),
        "commit": origin.get("git_sha"),
        "packages": value_at(origin, "packages", {}),
        "python": str(origin.get("python", "")),
        "machine": value_at(origin, "machine", {}),
        "sets": value_at(origin, "set", []),
    }
    tables = list(run.readable_rows().rows.values())
    if not tables:
        return facts
    facts["frames"] = int(max(rows[TOTAL_FRAMES.column][-1] for rows in tables))
    facts["wall_seconds"] = float(max(rows["wall_t"][-1] for rows in tables))
    for training in read_trial(run, TOTAL_FRAMES.file, RETURNS[0]).trainings:
        facts["final_return"] = finite(training.final_return)
        facts["curve"] = _curve(training.line, tables[0])
    return facts


def _evaluation(run: RunRecord) -> GreedyEpisodes | None:
    """The greedy episodes of all workers; None if none were played."""
    returns = np.array(run.evaluated_returns, np.float64)
    if not returns.size:
        return None
    return GreedyEpisodes(
        episodes=returns.size,
        mean=returns.mean(),
        std=returns.std(),
        min=returns.min(),
        max=returns.max(),
    )


def _curve(returns: Line, clock: Rows) -> ReturnCurve:
    """The course of a training, whose seconds are in the rows `clock`. A point has the
    mean of the rows since the point before."""
    ends = np.linspace(0, returns.x.size, POINTS + 1)[1:].round().astype(np.int64)
    ends = np.unique(ends[ends > 0])
    starts = np.concatenate([[0], ends[:-1]])
    frame = returns.x[ends - 1]
    means = np.add.reduceat(returns.y, starts) / (ends - starts)
    wall_t = np.interp(frame, clock[TOTAL_FRAMES.column], clock["wall_t"])
    return ReturnCurve(
        frame=_rounded(frame),
        wall_t=_rounded(wall_t),
        episode_return=_rounded(means),
    )


def _rounded(numbers: FloatArray) -> list[float]:
    return [float(f"{number:.{DIGITS}g}") for number in numbers]


def _usage() -> _Usage:
    """How busy the machine has been so far; of an unknown system not known."""
    try:
        names, *_ = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return _Usage(time.monotonic(), None)
    user, nice, system, *_ = map(int, names.split()[1:])
    ticks = os.sysconf("SC_CLK_TCK")
    return _Usage(time.monotonic(), (user + nice + system) / ticks)
