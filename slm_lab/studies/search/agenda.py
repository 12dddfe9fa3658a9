"""The agenda of a search. A searcher proposes the values of trials, and a scheduler may
stop, pause or replace trials early."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from typing_extensions import override

from slm_lab.core.files import write_json
from slm_lab.metrics.trial_state import Params, TrialState
from slm_lab.records.event_log import (
    Began,
    Copied,
    Ended,
    Event,
    Proposed,
    Reported,
)
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.pool import Request, request_of
from slm_lab.studies.requirements import check_machine, check_spaces
from slm_lab.studies.search.outcomes import RowWatch, metrics_at
from slm_lab.studies.search.population import copy_checkpoints, delete_models
from slm_lab.studies.search.scheduler import Scheduler
from slm_lab.studies.search.searcher import Searcher
from slm_lab.studies.search.space import spec_at
from slm_lab.studies.study import Agenda, Decision
from slm_lab.studies.trial import TrialTask


@final
@dataclass(eq=False)
class SearchAgenda(Agenda):
    """Trials in the folder of a search. The number of a trial determines its Sessions'
    seeds and its file names."""

    spec: Spec
    run_dir: RunDir
    root_seed: int
    searcher: Searcher
    scheduler: Scheduler
    cores: float
    """The cores of the machine, or of the cluster."""
    imports: tuple[str, ...] = ()
    keep: int | None = None
    """The number of trials whose checkpoints are kept; None: all."""

    def __post_init__(self) -> None:
        super().__init__()
        self.num_trials = self.searcher.num_trials
        self.max_restart = self.spec.meta.max_restart
        self.needs_all = self.scheduler.needs_all
        self.smallest_request = self._needs(self.spec)
        self._watches: dict[int, RowWatch] = {}
        self._specs: dict[int, Spec] = {}

    @override
    def propose(self, trial: int) -> Params:
        return self.searcher.propose(trial)

    @override
    def choose(self, waiting: Sequence[int]) -> int | None:
        return self.scheduler.choose(waiting)

    @override
    def request(self, state: TrialState) -> Request:
        return self._needs(self.spec_of(state.trial))

    @override
    def task(self, state: TrialState) -> TrialTask:
        trial = state.trial
        spec = self.spec_of(trial)
        if not state.has_begun:
            check_spaces(f"trial {trial}", spec)
            check_machine(f"trial {trial}", spec)
            if self.run_dir.initial_file.is_file():
                # imports torch
                from slm_lab.records.init_from import check_initial

                check_initial(self.run_dir, spec)
        if not state.has_begun or state.copies:
            file = self.run_dir.trial_spec_file(trial)
            write_json(file, {spec.name: spec.to_json()})
        paths = [self.run_dir.session(trial, s).rows for s in spec.meta.writers]
        self._watches[trial] = RowWatch(paths, state.frame)
        return TrialTask(
            spec=spec,
            run_dir=self.run_dir,
            root_seed=self.root_seed,
            trial=trial,
            resume=state.has_begun,
            imports=self.imports,
            at_once=self.spec.meta.search_scheduler is not None,
            one_of_many=True,
        )

    @override
    def reports(self, trial: int) -> Sequence[tuple[int, float]]:
        return self._watches[trial].poll()

    @override
    def notify(self, event: Event) -> list[Decision]:
        match event:
            case Proposed(trial, params):
                self.scheduler.add(trial, params)
            case Began(trial):
                self.scheduler.begin(trial)
            case Reported(trial, frame, score):
                count = self.study_state.trials[trial].reports
                self.searcher.report(trial, count, score)
                return self.scheduler.report(trial, frame, score)
            case Copied(trial):
                self._specs.pop(trial, None)
            case Ended(trial, score=score):
                self.searcher.end(trial, score)
                return self.scheduler.end(trial)
        return []

    @override
    def copy(self, donor: int, trial: int) -> int | None:
        return copy_checkpoints(self.run_dir, self.spec_of(donor), donor, trial)

    @override
    def metrics_at(self, trial: int, frame: int) -> Mapping[str, float | None]:
        return metrics_at(self.run_dir, trial, self.spec_of(trial), frame)

    @override
    def conclude(self, state: TrialState) -> None:
        if self.keep is None:
            return
        # the checkpoints of the best ended trials only
        over = [trial for trial in self.study_state.ranked if trial.status.is_over]
        for ended in over[self.keep :]:
            delete_models(self.run_dir, ended.trial)

    def spec_of(self, trial: int) -> Spec:
        """The spec of a trial. Raises SpecError if its params give no valid spec."""
        if trial not in self._specs:
            params = self.study_state.trials[trial].params
            self._specs[trial] = spec_at(self.spec, params)
        return self._specs[trial]

    def _needs(self, spec: Spec) -> Request:
        return request_of(spec, self.spec.meta.search_resources, self.cores)
