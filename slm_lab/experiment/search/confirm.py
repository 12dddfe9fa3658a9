"""The best specs of a search, run again under fresh seeds: the result.

The best of many noisy trials was lucky too. What its spec scores under seeds that did not choose it
is what it is worth; how much less that is than the search's own number shows how much was luck.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from slm_lab.analysis.atomic import write_json
from slm_lab.experiment.baseline import CHANCE_FILE
from slm_lab.experiment.manifest import FORMAT, read_manifest
from slm_lab.experiment.provenance import provenance
from slm_lab.experiment.result import Ending
from slm_lab.experiment.run import with_seed
from slm_lab.experiment.run_dir import FOLDERS, RUN_BLOCK, RunDir
from slm_lab.experiment.search.outcomes import best_first
from slm_lab.experiment.search.pool import Pool
from slm_lab.experiment.search.process import TrialEnd, TrialTask
from slm_lab.experiment.search.record import Confirmed, Status, TrialState
from slm_lab.experiment.search.room import Needs, needs_of
from slm_lab.experiment.search.search import Search
from slm_lab.experiment.seeding import confirming_seed
from slm_lab.metrics.reader import read_rows
from slm_lab.spec.schema.meta import ConfirmSpec
from slm_lab.spec.schema.spec import Spec


@final
@dataclass(frozen=True)
class Candidate:
    """A spec that is to be run again."""

    its: TrialState
    spec: Spec
    run_dir: RunDir


@final
class Confirmation:
    """Runs the best specs of a search again, each in a run folder inside that of the search."""

    def __init__(
        self,
        search: Search,
        asked: ConfirmSpec,
        root_seed: int,
        imports: tuple[str, ...],
        pool: Pool,
    ) -> None:
        self.candidates = [
            _candidate(search, its, asked, root_seed) for its in _best(search)[: asked.top]
        ]
        self.stopping = False
        self.pool = pool
        self._search = search
        self._imports = imports
        self._waiting = self.missing
        self._tries = dict.fromkeys((each.its.trial for each in self.candidates), 0)

    @property
    def missing(self) -> list[Candidate]:
        """Those that have yet to be confirmed."""
        return [each for each in self.candidates if not self._is_done(each)]

    @property
    def files(self) -> dict[int, Path]:
        """The ready-made spec of each candidate by its trial: the first is of the best by what is
        confirmed, and before that by what the search says."""
        order = [found.trial for found in self._search.standing.results if found.mean is not None]
        trials = [each.its.trial for each in self.candidates]
        ranked = sorted(
            trials, key=lambda trial: order.index(trial) if trial in order else len(order)
        )
        return {trial: spec_file(self._search.run_dir, n) for n, trial in enumerate(ranked)}

    def write_specs(self) -> None:
        """Writes the ready-made specs, and deletes those of an earlier ranking. Raises OSError."""
        files = self.files
        for each in self.candidates:
            write_json(files[each.its.trial], {each.spec.name: each.spec.to_json()})
        for old in self._search.run_dir.root.glob("best_*.json"):
            if old not in files.values():
                old.unlink()

    def run(self, on_tick: Callable[[], None]) -> None:
        """To the end, or until it is stopped; what has come to its end is in the record.

        No process is left behind, whatever is raised.
        """
        by_trial = {each.its.trial: each for each in self.candidates}
        try:
            while True:
                if self.stopping:
                    self.pool.stop_all()  # one may have been about to begin
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
        """Has those that run save and end; no other begins."""
        self.stopping = True
        self.pool.stop_all()

    def _is_done(self, candidate: Candidate) -> bool:
        before = self._search.standing.confirmed.get(candidate.its.trial)
        wanted = len(candidate.spec.meta.trainings)
        return before is not None and before.error is None and len(before.scores) >= wanted

    def _fill(self) -> None:
        while self._waiting:
            candidate = self._waiting[0]
            resources = self._search.spec.meta.search_resources
            needs = needs_of(candidate.spec, resources, self.pool.room.cpus)
            if not self.pool.room.has(needs):
                return
            self._waiting.pop(0)
            self._begin(candidate, needs)

    def _begin(self, candidate: Candidate, needs: Needs) -> None:
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
        elsewhere = candidate.spec.meta.cluster is not None
        self.pool.start(candidate.its.trial, task, needs, among_gpus=not elsewhere)

    def _collect(self, candidate: Candidate, end: TrialEnd) -> None:
        """The end of a candidate, or of a try."""
        trial = candidate.its.trial
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
    """The `final_return` of each seed that came to its end; of workers their mean."""
    found = []
    spec, run_dir = candidate.spec, candidate.run_dir
    for crew in spec.meta.trainings:
        learning = [session for session in crew if not spec.meta.is_actor(session)]
        saved = [read_manifest(run_dir.session(0, session).manifest) for session in learning]
        if not all(manifest is not None and manifest.finished for manifest in saved):
            continue
        writers = [session for session in crew if session in spec.meta.writers]
        rows = [read_rows(run_dir.session(0, session).rows) for session in writers]
        last = [float(each["final_return"][-1]) for each in rows if len(each)]
        found.append(float(np.mean(last)) if last else float("nan"))
    return [score for score in found if np.isfinite(score)]


def spec_file(search_dir: RunDir, place: int) -> Path:
    """A ready-made spec; 0 is the best."""
    return search_dir.root / f"best_{place}.json"


def confirmed_dir(search_dir: RunDir, trial: int) -> RunDir:
    """The run folder of the fresh seeds of a trial's spec."""
    return RunDir(search_dir.root / f"confirm_t{trial}", search_dir.spec_name)


def _best(search: Search) -> Sequence[TrialState]:
    """Those that spent their budget; without any of them, those that were stopped."""
    order = [its for its in best_first(search.standing) if its.score is not None]
    finished = [its for its in order if its.status is Status.FINISHED]
    return finished or [its for its in order if its.status is Status.STOPPED]


def _candidate(search: Search, its: TrialState, asked: ConfirmSpec, root_seed: int) -> Candidate:
    spec = search.spec_of(its.trial)
    key = "max_session" if spec.meta.distributed is False else "max_run"
    meta = spec.meta.model_copy(update={key: asked.max_session})
    spec = with_seed(spec.model_copy(update={"meta": meta}), confirming_seed(root_seed, its.trial))
    return Candidate(its, spec, confirmed_dir(search.run_dir, its.trial))


def _make(candidate: Candidate, imports: tuple[str, ...]) -> None:
    for folder in FOLDERS:
        (candidate.run_dir.root / folder).mkdir(parents=True, exist_ok=True)
    spec = candidate.spec
    how = {"set": [], "mode": "train", "imports": list(imports)}
    about = {"format": FORMAT, **provenance(spec.meta.random_seed or 0), **how}
    content = {spec.name: spec.to_json(), RUN_BLOCK: about}
    write_json(candidate.run_dir.trial_spec_file(0), {spec.name: spec.to_json()})
    write_json(candidate.run_dir.spec_file, content)
