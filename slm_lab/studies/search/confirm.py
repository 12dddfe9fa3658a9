"""Confirmation: the best specs of a search run again with fresh seeds. The best of many
noisy trials is partly lucky. Fresh seeds did not select it, so their score is
unbiased."""

from dataclasses import replace
from math import isfinite
from pathlib import Path
from statistics import fmean, pstdev
from typing import final

from typing_extensions import override

from slm_lab.core.files import read_file, write_atomically, write_json
from slm_lab.metrics.trial_state import Params, Status, TrialState
from slm_lab.records.event_log import Confirmed
from slm_lab.records.origin import provenance
from slm_lab.records.run_record import RunRecord
from slm_lab.session.seeding import confirming_seed
from slm_lab.spec.schema.meta import ConfirmSpec
from slm_lab.storage.manifest import FORMAT
from slm_lab.storage.run_dir import FOLDERS, RunDir, origin_of
from slm_lab.studies.baseline import RANDOM_RETURNS_FILE
from slm_lab.studies.pool import Pool, Request, request_of
from slm_lab.studies.resume import write_spec
from slm_lab.studies.run import with_seed
from slm_lab.studies.search.agenda import SearchAgenda
from slm_lab.studies.study import Agenda, Study
from slm_lab.studies.trial import TrialTask, have_ended


@final
class Confirmation(Agenda):
    """Runs the best specs of a search again, each in a run folder inside the search's
    folder. Their results are in the log of the search."""

    def __init__(
        self, agenda: SearchAgenda, search: Study, pool: Pool, asked: ConfirmSpec
    ) -> None:
        super().__init__()
        self.asked = asked
        self._agenda = agenda
        self._search = search
        self._found = search.study_state
        scored = [state for state in self._found.ranked if state.score is not None]
        finished = [state for state in scored if state.status is Status.FINISHED]
        best = finished or [state for state in scored if state.status is Status.STOPPED]
        trials = [state.trial for state in best[: asked.top]]
        self.candidates = {trial: _candidate(agenda, trial, asked) for trial in trials}
        """The specs to run again, best first, by their trials in the search."""
        self._to_run = self.missing
        self.num_trials = len(self._to_run)
        self.max_restart = agenda.max_restart
        self.smallest_request = Request(cpu=0.0, gpu=0.0)
        self.pool = pool
        self.study = Study(self, pool)

    @property
    def missing(self) -> list[int]:
        """The trials of the candidates not yet confirmed."""
        missing = []
        for trial, task in self.candidates.items():
            before = self._found.confirmed.get(trial)
            wanted = len(task.spec.meta.trainings)
            if (
                before is None
                or before.error is not None
                or len(before.scores) < wanted
            ):
                missing.append(trial)
        return missing

    @property
    def files(self) -> dict[int, Path]:
        """The path of the spec file `best_{n}.json` of each candidate, by its trial.
        Candidates rank by confirmed mean; before any confirmation, by the search's
        ranking."""
        root = self._agenda.run_dir.root
        results = self._found.results
        confirmed = [result.trial for result in results if result.mean is not None]
        ranked = [trial for trial in confirmed if trial in self.candidates]
        ranked += [trial for trial in self.candidates if trial not in confirmed]
        return {trial: root / f"best_{n}.json" for n, trial in enumerate(ranked)}

    def write(self) -> list[Path]:
        """Writes the files `best_{n}.json`, and a table of the confirmed specs, the
        best first. Deletes files of an earlier ranking. Returns the path of the table,
        if any spec is confirmed. Raises OSError."""
        files = self.files
        run_dir = self._agenda.run_dir
        for trial, task in self.candidates.items():
            write_json(files[trial], {task.spec.name: task.spec.to_json()})
        for old in run_dir.root.glob("best_*.json"):
            if old not in files.values():
                old.unlink()
        if not self._found.confirmed:
            return []
        import pandas as pd

        rows = []
        for result in self._found.results:
            scores = result.scores
            std = None
            if scores:
                std = pstdev(scores)
            rows.append(
                {
                    "trial": result.trial,
                    "search_score": self._found.trials[result.trial].score,
                    "confirmed_mean": result.mean,
                    "confirmed_std": std,
                    "seeds": len(scores),
                    "scores": " ".join(map(str, scores)),
                }
            )
        path = run_dir.root / f"{run_dir.prefix}_confirmed.csv"
        table = pd.DataFrame(rows, dtype=object)
        write_atomically(path, table.to_csv(index=False).encode())
        return [path]

    @override
    def propose(self, trial: int) -> Params:
        return {"trial": self._to_run[trial]}

    @override
    def request(self, state: TrialState) -> Request:
        resources = self._agenda.spec.meta.search_resources
        cores = self.pool.resources.cpus
        return request_of(self._candidate(state).spec, resources, cores)

    @override
    def task(self, state: TrialState) -> TrialTask:
        task = self._candidate(state)
        task = replace(task, resume=task.run_dir.spec_file.is_file())
        for folder in FOLDERS:
            (task.run_dir.root / folder).mkdir(parents=True, exist_ok=True)
        origin = {
            "format": FORMAT,
            **provenance(task.root_seed),
            "set": [],
            "mode": "train",
            "imports": list(task.imports),
        }
        search_dir = self._agenda.run_dir
        if search_dir.initial_file.is_file():
            write_atomically(
                task.run_dir.initial_file, read_file(search_dir.initial_file)
            )
            origin["init_from"] = origin_of(search_dir.spec_file).get("init_from")
        write_spec(task.run_dir, task.spec, origin)
        return task

    @override
    def conclude(self, state: TrialState) -> None:
        task = self._candidate(state)
        error = state.error
        scores = _seed_scores(task)
        if len(scores) < len(task.spec.meta.trainings) and error is None:
            error = "a seed has no score: it has not finished an episode"
        trial = self._to_run[state.trial]
        self._search.record(Confirmed(trial, tuple(scores), error))

    @override
    def label(self, trial: int) -> str:
        return f"t{self._to_run[trial]}"

    def budget(self, trial: int) -> int:
        """The frames of each seed."""
        return self.candidates[self._to_run[trial]].spec.env.max_frame

    def recent_return(self, trial: int) -> float | None:
        """The mean over the Sessions of a running candidate; None before any episode
        has ended."""
        status_board = self.pool.running[trial].status_board
        sessions = [
            status_board.read(session) for session in range(status_board.num_sessions)
        ]
        known = [s.recent_return for s in sessions if s.recent_return is not None]
        if not known:
            return None
        return fmean(known)

    def _candidate(self, state: TrialState) -> TrialTask:
        return self.candidates[self._to_run[state.trial]]


def _seed_scores(task: TrialTask) -> list[float]:
    """The final return of each finished seed that has one."""
    ended, _ = have_ended(task.spec, task.run_dir, 0)
    record = RunRecord(task.run_dir)
    scores = [
        record.final_return(sessions)
        for sessions in task.spec.meta.trainings
        if all(ended[session] for session in sessions)
    ]
    return [score for score in scores if isfinite(score)]


def _candidate(agenda: SearchAgenda, trial: int, asked: ConfirmSpec) -> TrialTask:
    spec = agenda.spec_of(trial)
    run_dir = agenda.run_dir
    seed = confirming_seed(agenda.root_seed, trial)
    key = "max_session" if spec.meta.distributed is False else "max_run"
    meta = spec.meta.model_copy(update={key: asked.max_session})
    return TrialTask(
        with_seed(spec.model_copy(update={"meta": meta}), seed),
        RunDir(run_dir.root / f"confirm_t{trial}", run_dir.spec_name),
        seed,
        imports=agenda.imports,
        random_returns_file=run_dir.root.parent / RANDOM_RETURNS_FILE,
    )
