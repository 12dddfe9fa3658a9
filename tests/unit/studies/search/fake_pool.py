"""Trials that are simulated instead of trained: deterministic, and without processes.

The moving average of each is the negative of its return, so no decision may use it.
"""

import shutil

from slm_lab.storage.result import Ending
from slm_lab.studies.pool import Resources, Slots, TrialEnd
from slm_lab.studies.search.searcher import Searcher

HEADER = (
    "frame,total_frame,opt_step,epi,total_reward,mean_return,recent_return,"
    "final_return,final_return_episodes,total_reward_ma\n"
)
EVERY = 100
"""Frames between two rows."""


class FakeTrial:
    """A trial at the frame in its files; it writes one row at a time."""

    def __init__(self, task, score_at, fault=None):
        self.task, self.spec = task, task.spec
        self.seconds, self.stopping, self.end = 1.0, False, None
        self.waited = False
        self._score_at, self._fault = score_at, fault
        self.files = [
            task.run_dir.session(task.trial, s).rows for s in task.spec.meta.writers
        ]
        for file in self.files:
            if not file.exists():
                file.write_text(HEADER)
        self.frame = EVERY * min(
            file.read_text().count("\n") - 1 for file in self.files
        )

    def stop(self):
        self.stopping = True

    def step(self):
        """The next row, or the end."""
        if self.end is not None:
            return
        if self._fault is not None and self.frame >= self._fault.frame:
            self.end = TrialEnd(
                Ending.FAILED, {}, self._fault.error, self._fault.would_repeat
            )
        elif self.frame >= self.spec.env.max_frame:
            self.end = TrialEnd(Ending.FINISHED, self.metrics())
        elif self.stopping:
            self.end = TrialEnd(Ending.INTERRUPTED, self.metrics())
        else:
            self.make_row()

    def make_row(self):
        self.frame += EVERY
        score = self._score_at(self.task.spec, self.frame)
        for file in self.files:
            with file.open("a") as stream:
                clocks, returns = [self.frame] * 4, [score] * 4
                stream.write(",".join(map(str, [*clocks, *returns, 20, -score])) + "\n")

    def metrics(self):
        score = self._score_at(self.task.spec, self.frame) if self.frame else None
        average = None if score is None else -score
        return {"final_return": score, "total_reward_ma": average, "strength": score}


class Fault:
    """A trial fails when it is at `frame`, the first `times` times that it is there."""

    def __init__(self, frame, times=1, error="it broke", would_repeat=False):
        self.frame, self.times, self.error, self.would_repeat = (
            frame,
            times,
            error,
            would_repeat,
        )


class FakePool(Slots):
    """Slots without processes. Each running trial writes a row while it waits."""

    def __init__(self, score_at, cpus=2, faults=None):
        self.resources = Resources(cpus, 0)
        self.running, self.places = {}, {}
        self.began = []
        """(trial, whether it was resumed, the frame it began at)"""
        self.stopped, self.killed = [], []
        self.late = {}
        """(frame, ending) of trials whose last row comes together with their end"""
        self._score_at, self._faults = score_at, faults or {}

    def start(self, trial, task, request):
        self.places[trial] = self.resources.take(request)
        fault = self._faults.get(trial)
        if fault is not None and fault.times == 0:
            fault = None
        self.running[trial] = FakeTrial(task, self._score_at, fault)
        self.began.append((trial, task.resume, self.running[trial].frame))

    def wait(self):
        for trial, process in self.running.items():
            if process.frame + EVERY != self.late.get(trial, (0,))[0]:
                process.step()

    def take_ends(self):
        for trial, (frame, ending) in self.late.items():
            process = self.running.get(trial)
            if process is not None and process.frame + EVERY == frame:
                if process.waited:
                    process.make_row()
                    process.end = TrialEnd(ending, process.metrics())
                process.waited = True
        ended = {
            trial: process.end._replace(seconds=process.seconds, frame=process.frame)
            for trial, process in self.running.items()
            if process.end is not None
        }
        for trial, end in ended.items():
            if end.ending is Ending.FAILED and trial in self._faults:
                self._faults[trial].times -= 1
            self._forget(trial)
        return ended

    def frame_of(self, trial):
        return self.running[trial].frame if trial in self.running else 0

    def stop(self, trial):
        self.stopped.append(trial)
        self.running[trial].stop()

    def stop_all(self):
        for trial in self.running:
            self.stop(trial)

    def kill(self, trial):
        self.killed.append(trial)
        process = self.running[trial]
        self._forget(trial)
        return process

    def kill_all(self):
        for trial in list(self.running):
            self.kill(trial)

    def _forget(self, trial):
        del self.running[trial]
        self.resources.give_back(self.places.pop(trial))


class Listed(Searcher):
    """Proposes the points of a list, and records its calls."""

    def __init__(self, points):
        self.num_trials = len(points)
        self.points = points
        self.calls = []

    def propose(self, trial):
        return self.points[trial]

    def report(self, trial, count, score):
        self.calls.append((trial, count, score))

    def end(self, trial, score):
        self.calls.append((trial, score))


def copy_rows(run_dir, spec, donor, trial):
    """As `copy_checkpoints`, of trials whose rows are all that they have."""
    sources = [run_dir.session(donor, s).rows for s in spec.meta.writers]
    if not all(
        source.exists() and source.read_text().count("\n") > 1 for source in sources
    ):
        return None
    for session, source in zip(spec.meta.writers, sources, strict=True):
        shutil.copyfile(source, run_dir.session(trial, session).rows)
    return EVERY * (sources[0].read_text().count("\n") - 1)
