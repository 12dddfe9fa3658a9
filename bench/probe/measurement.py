"""Measures a spec, predicts what changes of its keys would give, and runs the best."""

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from bench.probe.changes import AS_IS, Change, candidates
from slm_lab.core.errors import LabError
from slm_lab.core.process import importing, usable_cores
from slm_lab.experiment.source import RunSource
from slm_lab.experiment.trial import Trial, TrialTask
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.spec.scale import scaled
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.run_dir import RunDir

if TYPE_CHECKING:
    from bench.probe.rehearsal import Times

BEST = 3
"""Changes that are run after they were predicted."""
WORTH = 1.05
"""The smallest ratio of two speeds that is a gain."""
RUN_SECONDS, RUN_EVENTS = 6.0, 4
"""How long a run is measured: seconds, and training events."""
LONGEST_SECONDS = 150.0
"""How long a run may take until it has been measured."""
WARM_UP = 1_000
"""Frames before the first training event are cut to these."""
ENDLESS = 10**9
"""The budget of a run, which is stopped."""


@final
class Probe:
    """A spec on this machine. Its runs have their files in `folder`."""

    def __init__(self, source: RunSource, folder: Path) -> None:
        """Raises SpecError and UsageError as `RunSource.load`."""
        self._source = source
        self._folder = folder
        self.spec = source.load()
        self._specs = {AS_IS: as_probed(self.spec)}
        for change in candidates(self.spec):
            try:
                spec = replace(source, sets=(*source.sets, *change.sets)).load(warn=False)
            except LabError:  # the spec does not allow it
                continue
            self._specs[change] = as_probed(spec)
        self._times: dict[Change, list[Times]] = {}

    @property
    def num_changes(self) -> int:
        """Changes that the spec allows."""
        return len(self._specs) - 1

    def rehearse(self) -> list["Times"]:
        """Times the loops of all specs, without exchange; returns those of the spec's workers.
        Raises LabError."""
        with importing():  # imports torch
            from bench.probe.rehearsal import rehearse

        for workers, group in groupby(sorted(self._specs, key=self._workers), key=self._workers):
            changes = list(group)
            specs = [scaled(self._specs[change]) for change in changes]
            found = rehearse(specs, workers, self._source.imports)
            for change, times in zip(changes, found, strict=True):
                if times is not None:
                    self._times[change] = times
        return self._times[AS_IS]

    def _workers(self, change: Change) -> int:
        """The number of loops at a time."""
        meta = self._specs[change].meta
        return 1 if meta.mode.has_learner else meta.num_sessions

    def rehearsed(self, change: Change) -> float:
        """Frames/s of all workers together, were exchange free. A learner and its actors are as
        fast as the slower of the two."""
        meta, times = self._specs[change].meta, self._times[change]
        if meta.mode.has_learner:
            (one,) = times
            return min((meta.num_sessions - 1) / (one.total - one.update), 1 / one.update)
        return sum(1 / each.total for each in times)

    def predictions(self, frames_per_s: float) -> dict[Change, float]:
        """The frames/s that each change should give if the spec as it is makes `frames_per_s` in a
        run. The best is first; changes of what is learned come last."""
        real = frames_per_s / self.rehearsed(AS_IS)
        found = {change: real * self.rehearsed(change) for change in self._times}
        del found[AS_IS]
        return dict(sorted(found.items(), key=lambda each: (each[0].learns, -each[1])))

    def run(self, change: Change) -> float:
        """Runs the spec with a change for some seconds; returns its frames/s. Raises LabError if
        it fails, KeyboardInterrupt if the user stops it."""
        spec, times = self._specs[change], self._times[change]
        event = max(each.event_frames for each in times)
        seconds = RUN_EVENTS * event * max(each.total for each in times)
        counted = slice(1) if spec.meta.mode.has_learner else slice(None)
        watch = Watch(event * spec.meta.num_sessions, max(RUN_SECONDS, seconds), counted)
        run_dir = RunDir.create(self._folder, spec.name, datetime.now())
        result = Trial(TrialTask(spec, run_dir, 0, imports=self._source.imports), watch).run()
        for failed in result.failed:
            raise LabError(f"a run failed: Session {failed.session}: {failed.error}")
        if watch.is_late:
            raise LabError(f"a run was not measured within {LONGEST_SECONDS:g} s")
        if not watch.is_over:
            raise KeyboardInterrupt
        return watch.frames_per_s


def best(predictions: Mapping[Change, float], frames_per_s: float) -> list[Change]:
    """The changes that promise a gain over `frames_per_s`, as many as are run."""
    return [each for each, speed in predictions.items() if speed > WORTH * frames_per_s][:BEST]


def fastest(runs: Mapping[Change, float], frames_per_s: float) -> Change | None:
    """The change with the fastest run, of those that learn alike if one is a gain; None if none
    is."""
    gains = {change: speed for change, speed in runs.items() if speed > WORTH * frames_per_s}
    return min(gains, key=lambda each: (each.learns, -gains[each]), default=None)


def as_probed(spec: Spec) -> Spec:
    """The spec with a short warm-up, without an end, evaluations and videos; of several trainings
    those that run at a time."""
    algorithm, meta = spec.agent.algorithm, spec.meta
    start = getattr(algorithm, "training_start_step", None)
    if start is not None:
        algorithm = algorithm.model_copy(update={"training_start_step": min(start, WARM_UP)})
    together = min(meta.max_session, usable_cores()) if meta.distributed is False else None
    keys = {
        "log_frequency": spec.log_frequency,
        "record_video": None,
        "eval_frequency": None,
        "max_run": 1,
        "max_session": together or meta.max_session,
    }
    return spec.model_copy(
        update={
            "agent": spec.agent.model_copy(update={"algorithm": algorithm}),
            "env": spec.env.model_copy(update={"max_frame": ENDLESS}),
            "meta": meta.model_copy(update=keys),
        }
    )


@final
class Watch:
    """Measures a Trial for some seconds once it has made `start` frames, and stops it. Frames are
    those of the `counted` Sessions: a learner's are its actors'."""

    def __init__(self, start: float, seconds: float, counted: slice = slice(None)) -> None:
        self._start, self._seconds, self._counted = start, seconds, counted
        self._seen: list[tuple[float, int]] = []
        self._began = time.perf_counter()
        self.is_over = self.is_late = False

    def __call__(self, board: StatusBoard) -> None:
        """To be called a few times a second."""
        frames, now = int(board.clock_slots[self._counted].sum()), time.perf_counter()
        run = all(board.phase(one) is Phase.RUNNING for one in range(board.num_sessions))
        if run and frames > self._start and not self.is_over:
            self._seen.append((now, frames))
            self.is_over = now - self._seen[0][0] >= self._seconds
        self.is_late = not self.is_over and now - self._began > LONGEST_SECONDS
        if self.is_over or self.is_late:
            board.request_stop()

    @property
    def frames_per_s(self) -> float:
        """The slope of a line through the frames, which stand still while a worker learns."""
        seconds, frames = np.array(self._seen, float).T
        return float(np.polyfit(seconds - seconds[0], frames, 1)[0])
