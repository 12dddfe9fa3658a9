"""Prepares a search from a request on the command line, in a new or an existing folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, final

from slm_lab.core.errors import SpecError
from slm_lab.core.files import write_json
from slm_lab.env.versions import env_record
from slm_lab.experiment.experiment import Experiment
from slm_lab.experiment.preflight import check_place
from slm_lab.experiment.resume import about_file, about_versions, continued
from slm_lab.experiment.run import check_spaces, with_seed
from slm_lab.experiment.search.envs import env_problems
from slm_lab.experiment.search.pool import Pool
from slm_lab.experiment.search.population import Population
from slm_lab.experiment.search.resources import Resources, needs_of, of_this_machine
from slm_lab.experiment.search.scheduler import SCHEDULERS, NoScheduler, Scheduler
from slm_lab.experiment.search.searcher import build_searcher
from slm_lab.experiment.search.space import Space, check_whole
from slm_lab.experiment.trust import check_allowed, check_source, modules_at
from slm_lab.session.seeding import draw_root_seed, search_seeds
from slm_lab.spec.load import load_spec
from slm_lab.spec.schema.scheduler import PbtSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.lock import RunLock
from slm_lab.storage.origin import begun, resumed
from slm_lab.storage.provenance import provenance
from slm_lab.storage.run_dir import RUN_BLOCK, RunDir
from slm_lab.storage.run_lookup import asked_spec_name, find_run

MAY_CHANGE = (
    "meta.max_trial",
    "meta.max_restart",
    "meta.search_resources",
    "meta.confirm",
    "meta.cluster",
)
"""Keys that `-s` may change when a search resumes: none that earlier trials depend on."""


@final
@dataclass(frozen=True)
class SearchRequest:
    """The options of the user's command."""

    spec_file: str
    spec_name: str | None
    resume_from: str | None = None
    """ "latest", a folder, or its name in the data folder; None: a new search"""
    sets: tuple[str, ...] = ()
    seed: int | None = None
    data_dir: Path = Path("data")
    imports: tuple[str, ...] = ()
    keep: int | None = None
    """The number of trials whose checkpoints are kept; None: all."""


@final
class Prepared:
    """A search ready to run: its spec is checked, its folder is made or found."""

    def __init__(self, request: SearchRequest) -> None:
        """Raises SpecError or UsageError with every problem before any process starts."""
        self.notes: tuple[str, ...] = ()
        """Messages for the user before the search starts."""
        self.is_resumed = request.resume_from is not None
        self.imports = request.imports
        if request.resume_from is None:
            self._begin(request)
        else:
            self._resume(request, request.resume_from)
        if self.search.has_strayed:
            self.notes += (
                f"{self.spec.meta.search_alg} proposes other points than the record holds, as "
                "another version of it may: new trials do not follow from the seed alone",
            )

    def _begin(self, request: SearchRequest) -> None:
        """Begins a new search in a new folder."""
        overrides = {} if request.seed is None else {"meta.random_seed": request.seed}
        spec = load_spec(
            request.spec_file, request.spec_name, request.sets, overrides, for_search=True
        )
        check_source(request.spec_file, spec, request.imports)
        self._check(f"{request.spec_file}: {spec.name}", spec)
        seed = spec.meta.random_seed
        self.root_seed = draw_root_seed() if seed is None else seed
        self.spec = with_seed(spec, self.root_seed)
        self._room = _room(self.spec)
        self.run_dir = RunDir.create(request.data_dir, spec.name, datetime.now())
        self._lock = RunLock(self.run_dir.root)
        about = {**provenance(self.root_seed), "environment": env_record(self.spec.env)}
        how = {"mode": "search", "imports": list(request.imports), "keep": request.keep}
        self._write_spec(begun(about, request.spec_file, spec.name, request.sets, **how))
        self.run_dir.search_record.touch()
        self.search = self._search(request.keep)

    def _resume(self, request: SearchRequest, run: str) -> None:
        """Resumes the search named by `run`, with its recorded spec."""
        name = asked_spec_name(request.spec_file, request.spec_name)
        self.run_dir = find_run(run, request.data_dir, name, of_search=True)
        self._lock = RunLock(self.run_dir.root)
        try:
            self._restore(request)
        except BaseException:
            self._lock.release()
            raise

    def _restore(self, request: SearchRequest) -> None:
        """Restores the search from its record, and notes in its spec file that it resumes."""
        recorded = continued(
            self.run_dir,
            request.sets,
            request.seed,
            MAY_CHANGE,
            request.imports,
            is_search=True,
        )
        self.spec, self.root_seed, origin = recorded.spec, recorded.root_seed, recorded.origin
        self._check(f"{self.run_dir.root}: {self.spec.name}", self.spec)
        self._room = _room(self.spec)
        keep = origin.get("keep") if request.keep is None else request.keep
        self.search = self._search(keep)
        points = [state.params for state in self.search.search_state.trials.values()]
        where, data_dir = self.run_dir.root, request.data_dir
        check_allowed(where, modules_at(points), request.imports, data_dir)
        about = provenance(self.root_seed)
        self.notes += (
            *about_file(origin, request.spec_file, self.run_dir),
            *about_versions(origin, about),
        )
        how = {"imports": list(request.imports), "keep": keep}
        self._write_spec({**resumed(origin, about, request.sets, **how), "keep": keep})

    def close(self) -> None:
        """Releases the lock, so that another process can resume the search."""
        self._lock.release()

    def _search(self, keep: int | None) -> Experiment:
        searcher_seed, scheduler_seed = search_seeds(self.root_seed)
        space = Space(self.spec)
        return Experiment(
            self.spec,
            self.run_dir,
            self.root_seed,
            build_searcher(space, self.spec.meta, searcher_seed),
            _scheduler(self.spec, space, scheduler_seed),
            Pool(self._room),
            self.imports,
            keep,
        )

    def _check(self, where: str, spec: Spec) -> None:
        check_whole(where, spec)
        check_spaces(where, spec)
        if problems := env_problems(Space(spec), spec):
            raise SpecError(where, problems)
        check_place(where, spec)
        build_searcher(Space(spec), spec.meta, 0)  # reports a missing extra before a folder exists

    def _write_spec(self, about: Mapping[str, Any]) -> None:
        write_json(self.run_dir.spec_file, {self.spec.name: self.spec.to_json(), RUN_BLOCK: about})


def _room(spec: Spec) -> Resources:
    """The resources of this machine or the cluster.

    Raises UsageError if a single trial does not fit.
    """
    if spec.meta.cluster is None:
        room = of_this_machine(with_gpus=spec.meta.search_resources.gpu > 0)
    else:
        from slm_lab.parallel.ray.connect import size_of

        room = Resources(*size_of(spec.meta.cluster))
    room.check(needs_of(spec, spec.meta.search_resources, room.cpus))
    return room


def _scheduler(spec: Spec, space: Space, seed: int) -> Scheduler:
    scheduler, max_frame = spec.meta.search_scheduler, spec.env.max_frame
    if scheduler is None:
        return NoScheduler()
    if isinstance(scheduler, PbtSpec):
        return Population(scheduler, space.dimensions, max_frame, seed)
    return SCHEDULERS[type(scheduler)](scheduler, max_frame, seed)
