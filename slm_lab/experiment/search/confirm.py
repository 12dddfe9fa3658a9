"""Confirmation: the best specs of a search run again with fresh seeds.

The best of many noisy trials owes part of its score to luck. Fresh seeds, which did not select the
spec, give an unbiased score. The drop from the search's score is the selection bias.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from slm_lab.core.files import write_json
from slm_lab.experiment.baseline import CHANCE_FILE
from slm_lab.experiment.experiment import Experiment
from slm_lab.experiment.run import with_seed
from slm_lab.experiment.search.event_log import Confirmed, Status, TrialState
from slm_lab.experiment.search.outcomes import best_first
from slm_lab.experiment.search.pool import Pool
from slm_lab.experiment.search.resources import Request, needs_of
from slm_lab.experiment.search.trial_process import TrialEnd, TrialTask
from slm_lab.metrics.reader import read_rows
from slm_lab.session.seeding import confirming_seed
from slm_lab.spec.schema.meta import ConfirmSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.manifest import FORMAT, read_manifest
from slm_lab.storage.provenance import provenance
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import FOLDERS, RUN_BLOCK, RunDir


@final
@dataclass(frozen=True)
class Candidate:
    """A spec to run again."""

    state: TrialState
    spec: Spec
    run_dir: RunDir


@final
class Confirmation:
    """Runs the best specs of a search again, each in a run folder inside the search's folder."""

    def __init__(
        self,
        search: Experiment,
        asked: ConfirmSpec,
        root_seed: int,
        imports: tuple[str, ...],
        pool: Pool,
    ) -> None:
        self.candidates = [
            _candidate(search, state, asked, root_seed) for state in _best(search)[: asked.top]
        ]
        self.stopping = False
        self.pool = pool
        self._search = search
        self._imports = imports
        self._waiting = self.missing
        self._tries = dict.fromkeys((each.state.trial for each in self.candidates), 0)

    @property
    def missing(self) -> list[Candidate]:
        """The candidates not yet confirmed."""
        return [each for each in self.candidates if not self._is_done(each)]

    @property
    def files(self) -> dict[int, Path]:
        """The path of the spec file `best_{n}.json` of each candidate, by its trial.

        Candidates rank by confirmed mean; before any confirmation, by the search's ranking.
        """
        order = [
            found.trial for found in self._search.search_state.results if found.mean is not None
        ]
        trials = [each.state.trial for each in self.candidates]
        ranked = sorted(
            trials, key=lambda trial: order.index(trial) if trial in order else len(order)
        )
        return {trial: spec_file(self._search.run_dir, n) for n, trial in enumerate(ranked)}

    def write_specs(self) -> None:
        """Writes the files `best_{n}.json`, and deletes those of an earlier ranking.

        Raises OSError.
        """
        files = self.files
        for each in self.candidates:
            write_json(files[each.state.trial], {each.spec.name: each.spec.to_json()})
        for old in self._search.run_dir.root.glob("best_*.json"):
            if old not in files.values():
                old.unlink()

    def run(self, on_tick: Callable[[], None]) -> None:
        """Runs the missing candidates until all end or `stop` is called; logs each result.

        Kills all processes before it returns or raises.
        """
        by_trial = {each.state.trial: each for each in self.candidates}
        try:
            while True:
                if self.stopping:
                    self.pool.stop_all()  # again: a trial may have started after `stop`
                else:
                    self._fill()
                if not self.pool.running:
                    break
                self.pool.wait()
                for trial, _, end in self.pool.ends():
                    self._collect(by_trial[trial], end)
                on_tick()
        finally:
            self.pool.kill_all()

    def stop(self) -> None:
        """Makes running candidates save and end, and starts no others."""
        self.stopping = True
        self.pool.stop_all()

    def _is_done(self, candidate: Candidate) -> bool:
        before = self._search.search_state.confirmed.get(candidate.state.trial)
        wanted = len(candidate.spec.meta.trainings)
        return before is not None and before.error is None and len(before.scores) >= wanted

    def _fill(self) -> None:
        while self._waiting:
            candidate = self._waiting[0]
            resources = self._search.spec.meta.search_resources
            request = needs_of(candidate.spec, resources, self.pool.room.cpus)
            if not self.pool.room.has(request):
                return
            self._waiting.pop(0)
            self._begin(candidate, request)

    def _begin(self, candidate: Candidate, request: Request) -> None:
        resume = candidate.run_dir.spec_file.is_file()
        _make(candidate, self._imports)
        task = TrialTask(
            candidate.spec,
            candidate.run_dir,
            candidate.spec.meta.random_seed or 0,
            0,
            resume,
            self._imports,
            at_once=False,
            chance_file=self._search.run_dir.root.parent / CHANCE_FILE,
            one_of_many=False,
        )
        on_cluster = candidate.spec.meta.cluster is not None
        self.pool.start(candidate.state.trial, task, request, among_gpus=not on_cluster)

    def _collect(self, candidate: Candidate, end: TrialEnd) -> None:
        """Handles the end of a candidate's process: retries it, or logs its scores."""
        trial = candidate.state.trial
        if end.ending is Ending.INTERRUPTED:
            return
        if end.ending is Ending.FAILED and not end.would_repeat and not self.stopping:
            self._tries[trial] += 1
            if self._tries[trial] <= self._search.spec.meta.max_restart:
                self._waiting.insert(0, candidate)
                return
        scores, error = seed_scores(candidate), end.error
        if len(scores) < len(candidate.spec.meta.trainings) and error is None:
            error = "a seed has no score: it has not finished an episode"
        self._search.note(Confirmed(trial, tuple(scores), error))


def seed_scores(candidate: Candidate) -> list[float]:
    """The `final_return` of each finished seed, averaged over its workers."""
    found = []
    spec, run_dir = candidate.spec, candidate.run_dir
    for sessions in spec.meta.trainings:
        learning = [session for session in sessions if not spec.meta.is_actor(session)]
        saved = [read_manifest(run_dir.session(0, session).manifest) for session in learning]
        if not all(manifest is not None and manifest.finished for manifest in saved):
            continue
        writers = [session for session in sessions if session in spec.meta.writers]
        rows = [read_rows(run_dir.session(0, session).rows) for session in writers]
        last = [float(each["final_return"][-1]) for each in rows if len(each)]
        found.append(float(np.mean(last)) if last else float("nan"))
    return [score for score in found if np.isfinite(score)]


def spec_file(search_dir: RunDir, place: int) -> Path:
    """The path of a file `best_{place}.json`; place 0 is the best."""
    return search_dir.root / f"best_{place}.json"


def confirmed_dir(search_dir: RunDir, trial: int) -> RunDir:
    """The run folder of the fresh seeds for a trial's spec."""
    return RunDir(search_dir.root / f"confirm_t{trial}", search_dir.spec_name)


def _best(search: Experiment) -> Sequence[TrialState]:
    """The finished trials, best first; if there are none, the stopped trials."""
    order = [state for state in best_first(search.search_state) if state.score is not None]
    finished = [state for state in order if state.status is Status.FINISHED]
    return finished or [state for state in order if state.status is Status.STOPPED]


def _candidate(
    search: Experiment, state: TrialState, asked: ConfirmSpec, root_seed: int
) -> Candidate:
    spec = search.spec_of(state.trial)
    key = "max_session" if spec.meta.distributed is False else "max_run"
    meta = spec.meta.model_copy(update={key: asked.max_session})
    spec = with_seed(
        spec.model_copy(update={"meta": meta}), confirming_seed(root_seed, state.trial)
    )
    return Candidate(state, spec, confirmed_dir(search.run_dir, state.trial))


def _make(candidate: Candidate, imports: tuple[str, ...]) -> None:
    for folder in FOLDERS:
        (candidate.run_dir.root / folder).mkdir(parents=True, exist_ok=True)
    spec = candidate.spec
    how = {"set": [], "mode": "train", "imports": list(imports)}
    about = {"format": FORMAT, **provenance(spec.meta.random_seed or 0), **how}
    content = {spec.name: spec.to_json(), RUN_BLOCK: about}
    write_json(candidate.run_dir.trial_spec_file(0), {spec.name: spec.to_json()})
    write_json(candidate.run_dir.spec_file, content)
