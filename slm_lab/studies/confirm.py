"""Confirmation: the best specs of a search run again with fresh seeds. The best of many
noisy trials is partly lucky. Fresh seeds did not select it, so their score is
unbiased."""

from dataclasses import replace
from pathlib import Path
from statistics import pstdev
from typing import final

import numpy as np
from typing_extensions import override

from slm_lab.core.files import read_file, write_atomically, write_json
from slm_lab.metrics.reader import read_rows
from slm_lab.metrics.trial_state import Status
from slm_lab.records.event_log import Confirmed
from slm_lab.records.lock import RunLock
from slm_lab.records.origin import provenance
from slm_lab.session.seeding import confirming_seed
from slm_lab.spec.schema.meta import ConfirmSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.manifest import FORMAT, read_manifest
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import FOLDERS, RUN_BLOCK, RunDir, origin_of
from slm_lab.studies.baseline import RANDOM_RETURNS_FILE
from slm_lab.studies.pool import TrialRunner, request_of
from slm_lab.studies.run import with_seed
from slm_lab.studies.search.experiment import Experiment
from slm_lab.studies.trial import TrialTask


@final
class Confirmation(TrialRunner):
    """Runs the best specs of a search again, each in a run folder inside the search's
    folder."""

    def __init__(self, search: Experiment, asked: ConfirmSpec) -> None:
        super().__init__(search.pool)
        scored = [
            state for state in search.search_state.ranked if state.score is not None
        ]
        finished = [state for state in scored if state.status is Status.FINISHED]
        best = finished or [state for state in scored if state.status is Status.STOPPED]
        trials = [state.trial for state in best[: asked.top]]
        self.candidates = {trial: _candidate(search, trial, asked) for trial in trials}
        """The specs to run again, best first, by their trials in the search."""
        self._search = search
        self._waiting = self.missing
        self._tries = dict.fromkeys(self.candidates, 0)
        self._locks: dict[int, RunLock] = {}

    @property
    def missing(self) -> list[int]:
        """The trials of the candidates not yet confirmed."""
        found = self._search.search_state.confirmed
        missing = []
        for trial, task in self.candidates.items():
            before = found.get(trial)
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
        results = self._search.search_state.results
        root = self._search.run_dir.root
        confirmed = [found.trial for found in results if found.mean is not None]
        ranked = [trial for trial in confirmed if trial in self.candidates]
        ranked += [trial for trial in self.candidates if trial not in confirmed]
        return {trial: root / f"best_{n}.json" for n, trial in enumerate(ranked)}

    def write(self) -> list[Path]:
        """Writes the files `best_{n}.json`, and a table of the confirmed specs, the
        best first. Deletes files of an earlier ranking. Returns the path of the table,
        if any spec is confirmed. Raises OSError."""
        files = self.files
        run_dir = self._search.run_dir
        state = self._search.search_state
        for trial, task in self.candidates.items():
            write_json(files[trial], {task.spec.name: task.spec.to_json()})
        for old in run_dir.root.glob("best_*.json"):
            if old not in files.values():
                old.unlink()
        if not state.confirmed:
            return []
        import pandas as pd

        rows = []
        for found in state.results:
            scores = found.scores
            score = state.trials[found.trial].score
            std = None
            if scores:
                std = pstdev(scores)
            every = " ".join(map(str, scores))
            rows.append((found.trial, score, found.mean, std, len(scores), every))
        header = (
            "trial",
            "search_score",
            "confirmed_mean",
            "confirmed_std",
            "seeds",
            "scores",
        )
        path = run_dir.root / f"{run_dir.prefix}_confirmed.csv"
        table = pd.DataFrame(rows, columns=header, dtype=object)
        write_atomically(path, table.to_csv(index=False).encode())
        return [path]

    @override
    def _fill(self) -> None:
        while self._waiting:
            trial = self._waiting[0]
            task = self.candidates[trial]
            resources = self._search.spec.meta.search_resources
            request = request_of(task.spec, resources, self.pool.resources.cpus)
            if not self.pool.resources.has(request):
                return
            self._waiting.pop(0)
            task = replace(task, resume=task.run_dir.spec_file.is_file())
            for folder in FOLDERS:
                (task.run_dir.root / folder).mkdir(parents=True, exist_ok=True)
            self._locks[trial] = RunLock(task.run_dir.root)
            resolved = {task.spec.name: task.spec.to_json()}
            how = {"set": [], "mode": "train", "imports": list(task.imports)}
            about = {"format": FORMAT, **provenance(task.root_seed), **how}
            initial = self._search.run_dir.initial_file
            if initial.is_file():
                write_atomically(task.run_dir.initial_file, read_file(initial))
                about["init_from"] = origin_of(self._search.run_dir.spec_file).get(
                    "init_from"
                )
            write_json(task.run_dir.trial_spec_file(0), resolved)
            write_json(task.run_dir.spec_file, {**resolved, RUN_BLOCK: about})
            self.pool.start(
                trial, task, request, among_gpus=task.spec.meta.cluster is None
            )

    @override
    def _poll(self) -> None:
        """Retries failed candidates, logs the scores of others."""
        for trial, _, end in self.pool.ends():
            self._locks.pop(trial).release()
            if end.ending is Ending.INTERRUPTED:
                continue
            if (
                end.ending is Ending.FAILED
                and not end.would_repeat
                and not self.stopping
            ):
                self._tries[trial] += 1
                if self._tries[trial] <= self._search.spec.meta.max_restart:
                    self._waiting.insert(0, trial)
                    continue
            task = self.candidates[trial]
            error = end.error
            scores = _seed_scores(task.spec, task.run_dir)
            if len(scores) < len(task.spec.meta.trainings) and error is None:
                error = "a seed has no score: it has not finished an episode"
            self._search.note(Confirmed(trial, tuple(scores), error))


def _seed_scores(spec: Spec, run_dir: RunDir) -> list[float]:
    """The `final_return` of each finished seed, averaged over its workers."""
    found = []
    for sessions in spec.meta.trainings:
        learning = [session for session in sessions if not spec.meta.is_actor(session)]
        saved = [
            read_manifest(run_dir.session(0, session).manifest) for session in learning
        ]
        if not all(manifest is not None and manifest.finished for manifest in saved):
            continue
        writers = [session for session in sessions if session in spec.meta.writers]
        rows = [read_rows(run_dir.session(0, session).rows) for session in writers]
        last = [float(each["final_return"][-1]) for each in rows if len(each)]
        found.append(float(np.mean(last)) if last else float("nan"))
    return [score for score in found if np.isfinite(score)]


def _candidate(search: Experiment, trial: int, asked: ConfirmSpec) -> TrialTask:
    spec = search.spec_of(trial)
    seed = confirming_seed(search.root_seed, trial)
    key = "max_session" if spec.meta.distributed is False else "max_run"
    meta = spec.meta.model_copy(update={key: asked.max_session})
    root = search.run_dir.root
    return TrialTask(
        with_seed(spec.model_copy(update={"meta": meta}), seed),
        RunDir(root / f"confirm_t{trial}", search.run_dir.spec_name),
        seed,
        imports=search.imports,
        random_returns_file=root.parent / RANDOM_RETURNS_FILE,
    )
