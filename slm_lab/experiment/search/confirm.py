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
from slm_lab.experiment.recorded import RUN_BLOCK
from slm_lab.experiment.result import Ending
from slm_lab.experiment.run import with_seed
from slm_lab.experiment.run_dir import FOLDERS, RunDir
from slm_lab.experiment.search.outcomes import best_first
from slm_lab.experiment.search.pool import Pool
from slm_lab.experiment.search.process import TrialEnd, TrialTask
from slm_lab.experiment.search.record import Confirmed, Status, TrialState
from slm_lab.experiment.search.room import needs_of
from slm_lab.experiment.search.search import Search
from slm_lab.experiment.seeding import confirming_seed
from slm_lab.metrics.reader import read_rows
from slm_lab.spec.schema.meta import ConfirmSpec
from slm_lab.spec.schema.spec import Spec


@final
@dataclass(frozen=True)
class Candidate:
    """A spec that is to be run again; `rank` 0 is the best of the search."""

    rank: int
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
            _candidate(search, rank, its, asked, root_seed)
            for rank, its in enumerate(_best(search)[: asked.top])
        ]
        self.stopping = False
        self.pool = pool
        self._search = search
        self._imports = imports
        self._waiting = [each for each in self.candidates if not self._is_done(each)]

    def run(self, on_tick: Callable[[], None]) -> None:
        """To the end, or until it is stopped; what has come to its end is in the record.

        No process is left behind, whatever is raised.
        """
        by_trial = {each.its.trial: each for each in self.candidates}
        try:
            while True:
                if not self.stopping:
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
            self.pool.start(
                candidate.its.trial, task, needs, among_gpus=candidate.spec.meta.cluster is None
            )

    def _collect(self, candidate: Candidate, end: TrialEnd) -> None:
        if end.ending is Ending.INTERRUPTED:
            return
        scores = () if end.ending is Ending.FAILED else tuple(seed_scores(candidate))
        self._search.note(Confirmed(candidate.its.trial, scores, end.error))


def seed_scores(candidate: Candidate) -> list[float]:
    """The last `total_reward_ma` of each seed; of workers their mean."""
    found = []
    meta = candidate.spec.meta
    for crew in meta.trainings:
        writers = [session for session in crew if session in meta.writers]
        rows = [read_rows(candidate.run_dir.session(0, s).rows) for s in writers]
        last = [float(each["total_reward_ma"][-1]) for each in rows if len(each)]
        found.append(float(np.mean(last)) if last else float("nan"))
    return [score for score in found if np.isfinite(score)]


def spec_file(search_dir: RunDir, rank: int) -> Path:
    """The ready-made spec of a rank."""
    return search_dir.root / f"best_{rank}.json"


def confirmed_dir(search_dir: RunDir, trial: int) -> RunDir:
    """The run folder of the fresh seeds of a trial's spec."""
    return RunDir(search_dir.root / f"confirm_t{trial}", search_dir.spec_name)


def _best(search: Search) -> Sequence[TrialState]:
    """Those that spent their budget; without any of them, those that were stopped."""
    order = [its for its in best_first(search.standing) if its.score is not None]
    finished = [its for its in order if its.status is Status.FINISHED]
    return finished or [its for its in order if its.status is Status.STOPPED]


def _candidate(
    search: Search, rank: int, its: TrialState, asked: ConfirmSpec, root_seed: int
) -> Candidate:
    spec = search.spec_of(its.trial)
    key = "max_session" if spec.meta.distributed is False else "max_run"
    meta = spec.meta.model_copy(update={key: asked.max_session})
    spec = with_seed(spec.model_copy(update={"meta": meta}), confirming_seed(root_seed, its.trial))
    write_json(spec_file(search.run_dir, rank), {spec.name: spec.to_json()})
    return Candidate(rank, its, spec, confirmed_dir(search.run_dir, its.trial))


def _make(candidate: Candidate, imports: tuple[str, ...]) -> None:
    for folder in FOLDERS:
        (candidate.run_dir.root / folder).mkdir(parents=True, exist_ok=True)
    spec = candidate.spec
    about = {"random_seed": spec.meta.random_seed, "imports": list(imports), "mode": "train"}
    content = {spec.name: spec.to_json(), RUN_BLOCK: about}
    write_json(candidate.run_dir.trial_spec_file(0), {spec.name: spec.to_json()})
    write_json(candidate.run_dir.spec_file, content)
