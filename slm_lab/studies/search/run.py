"""A search that is run: its trials, their graphs, and the best with fresh seeds. It
checks first that trials can make environments."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from pydantic import ValidationError

from slm_lab.core.errors import (
    MissingExtraError,
    Problem,
    SpecError,
    UsageError,
    undone_on_failure,
)
from slm_lab.core.text import escape_line
from slm_lab.env.check import check_env
from slm_lab.env.lookup import find_env
from slm_lab.records.event_log import EventLog
from slm_lab.records.lock import RunLock
from slm_lab.records.lookup import find_run, required_seed
from slm_lab.records.origin import provenance, resumed
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import check_allowed, modules_at
from slm_lab.session.seeding import search_seeds
from slm_lab.spec.load import warnings_held
from slm_lab.spec.override import with_value
from slm_lab.spec.schema.block import problems_of
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import LISTS, Dimension, extremes
from slm_lab.storage.run_dir import origin_of
from slm_lab.studies.pool import Pool, Resources, request_of, resources_for
from slm_lab.studies.requirements import check_machine, check_spaces
from slm_lab.studies.resume import (
    begin_run,
    check_initial,
    file_notes,
    resumed_spec,
    versions_notes,
    write_spec,
)
from slm_lab.studies.run import initial_of, seeded
from slm_lab.studies.search.agenda import SearchAgenda
from slm_lab.studies.search.confirm import Confirmation
from slm_lab.studies.search.outcomes import draw
from slm_lab.studies.search.population import Population
from slm_lab.studies.search.scheduler import NoScheduler, Scheduler, tune_scheduler
from slm_lab.studies.search.searcher import build_searcher
from slm_lab.studies.search.space import Space, check_has_search, spec_at
from slm_lab.studies.study import Study
from slm_lab.studies.trial import DrawTimer

if TYPE_CHECKING:
    from slm_lab.records.init_from import Initial

logger = logging.getLogger(__name__)

CHANGES_OF_RESUME = tuple(
    f"meta.{key}"
    for key in ("max_trial", "max_restart", "search_resources", "confirm", "cluster")
)
"""Keys that `-s` may change when a search resumes: none that earlier trials depend
on."""


@final
class SearchRun:
    """A search that is run, or resumed: its spec is checked, its folder is made or
    found."""

    @warnings_held()
    def __init__(self, source: RunSource) -> None:
        """Raises SpecError or UsageError with every problem before any process
        starts."""
        self.confirmation: Confirmation | None = None
        """The best again with fresh seeds, once the trials are over."""
        self.notes: tuple[str, ...] = ()
        """Messages for the user before the search starts."""
        self.is_resumed = source.run is not None
        self.imports = source.imports
        if source.run is None:
            self._begin(source)
        else:
            self.run_dir = find_run(
                source.run, source.data_dir, source.name(), of_search=True
            )
            self._lock = RunLock(self.run_dir.root)
            with undone_on_failure(self.close):
                self._resume(source)
        if self.search.has_strayed:
            self.notes += (
                f"{self.spec.meta.search_alg} proposes other params than the log "
                "holds, as another version may: the seed alone does not determine new "
                "trials",
            )

    def _begin(self, source: RunSource) -> None:
        spec = source.load(for_search=True)
        self._check(source.where(spec), spec)
        self.spec, self.root_seed = seeded(spec)
        self._resources = _resources(self.spec)
        initial = _initial_of(source, self.spec)
        self.run_dir, self._lock, self.notes = begin_run(
            source, self.spec, "search", initial, keep=source.keep
        )
        with undone_on_failure(self.close):
            self._open(source.keep)

    def _resume(self, source: RunSource) -> None:
        """Restores the search from its event log, and records in its spec file that it
        resumes."""
        _, self.spec = resumed_spec(
            self.run_dir, source, CHANGES_OF_RESUME, is_search=True
        )
        self.root_seed = required_seed(self.run_dir, self.spec.meta.random_seed)
        origin = origin_of(self.run_dir.spec_file)
        self._check(f"{self.run_dir.root}: {self.spec.name}", self.spec)
        check_initial(self.run_dir, origin)
        self._resources = _resources(self.spec)
        keep = origin.get("keep") if source.keep is None else source.keep
        self._open(keep)
        params = [state.params for state in self.search.study_state.trials.values()]
        check_allowed(
            self.run_dir.root, modules_at(params), source.imports, source.data_dir
        )
        searched = {dimension.path for dimension in Space(self.spec).dimensions}
        others = sorted({*chain(*params)} - searched)
        if others:
            log = self.run_dir.event_log_file
            raise UsageError(
                f"{log} sets {escape_line(others[0])}, which the search does not vary"
            )
        start = provenance(self.root_seed)
        about_spec = file_notes(origin, source.spec_file, self.run_dir)
        self.notes = (*about_spec, *versions_notes(origin, start))
        how = {
            "imports": list(source.imports),
            "keep": keep,
            "track": list(source.track),
        }
        origin = {**resumed(origin, start, source.sets, **how), "keep": keep}
        write_spec(self.run_dir, self.spec, origin)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.run_dir.root

    @property
    def study(self) -> Study:
        """What runs, or ran last: the trials, or the best of them again."""
        if self.confirmation is None:
            return self.search
        return self.confirmation.study

    @property
    def unconfirmed(self) -> list[int]:
        """The trials among the best that have no score with fresh seeds yet."""
        if self.confirmation is None:
            return []
        return self.confirmation.missing

    def run(
        self,
        searches: Callable[[Callable[[], None]], None],
        confirms: Callable[[Confirmation], None],
    ) -> list[Path]:
        """Runs the trials, and then the best of them with fresh seeds. `searches` runs
        `search` and calls its argument a few times a second, `confirms` runs the study
        of a confirmation. Returns the paths of the graphs and tables."""
        timer = DrawTimer()
        searches(lambda: timer.draw_if_due(self._draw))
        paths = self._draw()
        settings = self.spec.meta.confirm
        if settings is None or self.search.stopping:
            return paths
        self.confirmation = Confirmation(self.agenda, self.search, self.pool, settings)
        if self.confirmation.missing:
            confirms(self.confirmation)
        return [*paths, *_written(self.confirmation.write)]

    def _draw(self) -> list[Path]:
        return _written(
            lambda: draw(
                self.spec,
                self.run_dir,
                self.search.study_state,
                lambda: self.search.stopping,
            )
        )

    def close(self) -> None:
        """Releases the lock, so that another process can resume the search."""
        self._lock.release()

    def _open(self, keep: int | None) -> None:
        """Makes the study, which replays the event log."""
        searcher_seed, scheduler_seed = search_seeds(self.root_seed)
        space = Space(self.spec)
        self.pool = Pool(self._resources)
        self.agenda = SearchAgenda(
            spec=self.spec,
            run_dir=self.run_dir,
            root_seed=self.root_seed,
            searcher=build_searcher(space, self.spec.meta, searcher_seed),
            scheduler=_scheduler(self.spec, space, scheduler_seed),
            cores=self._resources.cpus,
            imports=self.imports,
            keep=keep,
        )
        log = EventLog(self.run_dir.event_log_file)
        self.search = Study(self.agenda, self.pool, log)

    def _check(self, where: str, spec: Spec) -> None:
        check_has_search(where, spec)
        check_spaces(where, spec)
        problems = env_problems(Space(spec), spec)
        if problems:
            raise SpecError(where, problems)
        check_machine(where, spec)
        # reports a missing extra before a folder exists
        build_searcher(Space(spec), spec.meta, 0)


def _written(write: Callable[[], list[Path]]) -> list[Path]:
    """The paths that `write` returns. A full disk only logs an error."""
    try:
        return write()
    except OSError as error:
        logger.error("cannot write graphs and tables: %s", error)
        return []


def _resources(spec: Spec) -> Resources:
    """The resources of this machine or the cluster. Raises UsageError if a single trial
    does not fit."""
    resources = resources_for([spec], jobs=None)
    resources.check(request_of(spec, spec.meta.search_resources, resources.cpus))
    return resources


def _scheduler(spec: Spec, space: Space, seed: int) -> Scheduler:
    scheduler = spec.meta.search_scheduler
    max_frame = spec.env.max_frame
    if scheduler is None:
        return NoScheduler()
    if scheduler.name == "pbt":
        return Population(scheduler, space.dimensions, max_frame, seed)
    return tune_scheduler(scheduler, max_frame, seed)


def _initial_of(source: RunSource, spec: Spec) -> "Initial | None":
    """What every trial begins with; None: fresh weights. Raises UsageError if it does
    not fit the spec, or the spec with a searched value of a net."""
    for dimension in Space(spec).dimensions if source.parent is not None else ():
        for value in extremes(dimension) if dimension.path.startswith("agent.") else ():
            with suppress(SpecError):  # the trial reports it
                initial_of(source, spec_at(spec, {dimension.path: value}))
    return initial_of(source, spec)


AT_MOST = 1000
"""Combinations of values that are tried. With more, an invalid value surfaces only in
the trials."""


def env_problems(space: Space, base: Spec) -> list[Problem]:
    """Problems of searched `env` values with which no trial could make its environment.
    It checks each listed value and one end of each range. Problems of the values of
    other keys are left out. Constructs no environment."""
    searched = [key for key in space.dimensions if f"{key.path}.".startswith("env.")]
    paths = [key.path for key in searched]
    choices = [extremes(key) for key in searched]
    for key, values in zip(searched, choices, strict=True):
        if key.sampler not in LISTS:
            del values[1:]
    points = list(islice(product(*choices), AT_MOST + 1))
    if len(points) > AT_MOST:
        return []
    tried = [
        (point, _problems_at(base, dict(zip(paths, point, strict=True))))
        for point in points
    ]
    problems = []
    for place, key in enumerate(searched):
        others = {path for path in paths if path != key.path}
        for value in choices[place]:
            of_value = [
                point_problems
                for point, point_problems in tried
                if point[place] is value
            ]
            key_problems = [
                [p for p in point_problems if p.path not in others]
                for point_problems in of_value
            ]
            if all(of_value):
                problems += _renamed(next(filter(None, key_problems), []), key, value)
    return problems


def _renamed(problems: list[Problem], key: Dimension, value: Any) -> list[Problem]:
    """Problems of a searched value, as problems of its key in the search."""
    name = f"search.{key.key}"
    return [
        Problem(name, problem.message, value)
        if problem.path == key.path
        else Problem(name, f"{problem.path}: {problem.message}", value)
        for problem in problems
    ]


def _problems_at(base: Spec, settings: Mapping[str, Any]) -> list[Problem]:
    changed: Any = {"env": base.env.model_dump(mode="json")}
    for path, value in settings.items():
        changed = with_value(changed, path, value)
    try:
        env = EnvSpec.model_validate(changed["env"])
    except ValidationError as error:
        return problems_of(error, "env")
    problems = check_env(env)
    if problems:
        return problems
    try:
        find_env(env)
    except MissingExtraError as error:
        return [Problem("env.name", str(error), env.name)]
    return []
