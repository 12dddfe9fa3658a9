"""Read-only access to the spec and the agents of a saved run. Needs no lock of the
run."""

import json
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final

import numpy as np

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import (
    CheckpointError,
    Problem,
    SpecError,
    UsageError,
    undone_on_failure,
)
from slm_lab.core.plugins import import_plugins
from slm_lab.core.recorded import differences, value_at
from slm_lab.core.types import FloatArray, StateDict
from slm_lab.env.simulators.film import Film
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.env.window import window_of
from slm_lab.records.archive import unpacked
from slm_lab.records.init_from import Parent
from slm_lab.records.lookup import find_folder, find_saved, required_seed
from slm_lab.records.origin import typed_settings
from slm_lab.records.run_record import RunRecord
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import (
    check_allowed,
    imports_for,
    modules_of,
    refuse_paths,
)
from slm_lab.session.evaluator import Evaluator, load_snapshot, snapshot_of
from slm_lab.session.initial import normalizers_in, values_of
from slm_lab.session.play_episodes import even_num_envs
from slm_lab.session.seeding import session_seeds
from slm_lab.session.video import filmed_spec
from slm_lab.spec.load import load_spec
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.checkpoint import CheckpointStore, reading
from slm_lab.storage.compatibility import check_fits, check_snapshot
from slm_lab.storage.manifest import Manifest, previous_path, read_manifest
from slm_lab.storage.run_dir import SessionPaths

Which: TypeAlias = Literal["best", "latest"]

PARTS: dict[Which, str] = {"best": "best", "latest": "state"}
"""The part of a checkpoint that holds the agent."""

NORM_PLACE_SINCE = 7
"""The first format of run folders whose specs have `norm_place`."""

MAY_CHANGE = (
    "env.max_t",
    "env.num_envs",
    "env.vectorization_mode",
    "env.image_channels",
    "agent.net.gpu",
    "meta.threads",
)
"""Keys that `-s` may change: how the agent runs, not the agent itself."""


@dataclass(frozen=True)
class SavedAgent:
    """An agent of the run in `folder`, or in the file of a shared run, saved at
    `frame`."""

    folder: Path
    session: int
    which: Which
    frame: int
    snapshot: StateDict
    """Its weights and statistics."""
    file: Path
    sha256: str = ""
    """The checksum of `file`."""

    def load_into(
        self, networks: Mapping[str, FlatParameters], statistics: FloatArray
    ) -> None:
        """Loads the snapshot into `networks` by name, and into the normalisers'
        `statistics` (S,). Raises CheckpointError if it does not fit the networks of the
        folder's (edited) spec."""
        with reading(self.file):
            check_fits(self.snapshot, networks, statistics, self.file)
            load_snapshot(self.snapshot, networks, statistics)


@final
class SavedAgents:
    """The saved agents of a run, or of a trial of a search. Reads only their files."""

    def __init__(self, record: RunRecord, folder: Path) -> None:
        """`folder` is the run folder, or the file of a shared run."""
        self._record = record
        self._folder = folder

    def begun(self) -> list[int]:
        """The Sessions that have a checkpoint."""
        prefix = f"{self._record.run_dir.trial_prefix(self._record.trial)}_s"
        files = (self._record.folder / "model").glob(f"{prefix}*_latest.json")
        numbers = (
            file.name.removeprefix(prefix).removesuffix("_latest.json")
            for file in files
        )
        return sorted(int(number) for number in numbers if number.isdecimal())

    def has_checkpoint(self, session: int) -> bool:
        """Whether a Session has a checkpoint yet."""
        with self._previous_reported(session) as paths:
            return read_manifest(paths.manifest) is not None

    def load(self, session: int, which: Which | None) -> SavedAgent:
        """The agent of a Session; by default the best, or the latest if there is no
        best. Raises UsageError if there is none, CheckpointError if its file is
        damaged."""
        with self._previous_reported(session) as paths:
            return self._load(paths, session, which)

    @contextmanager
    def _previous_reported(self, session: int) -> Iterator[SessionPaths]:
        """Adds the hint at the previous checkpoint to a CheckpointError."""
        paths = self._record.run_dir.session(self._record.trial, session)
        try:
            yield paths
        except CheckpointError as error:
            if not previous_path(paths.manifest).is_file():
                raise
            kept = (
                f"train@{self._record.folder} resumes from the previous checkpoint if "
                "it is intact"
            )
            raise CheckpointError(f"{error}; {kept}") from error

    def _load(
        self, paths: SessionPaths, session: int, which: Which | None
    ) -> SavedAgent:
        store = CheckpointStore(paths.models, paths.prefix)
        manifest = store.manifest()
        while manifest is not None:
            chosen = self._choose(session, manifest, which)
            try:
                state = store.load(manifest, PARTS[chosen])
                file = store.file(manifest, PARTS[chosen])
                with reading(file):
                    snapshot = state
                    if chosen != "best":
                        snapshot = snapshot_of(state)
                    frame = int(snapshot["frame"])
            except CheckpointError as error:
                before = manifest
                manifest = store.manifest()
                # else a running training has replaced it: try again
                if manifest == before:
                    if chosen == "latest":
                        raise
                    store.load(manifest, PARTS["latest"])
                    better = "choose the latest (--which latest)"
                    raise CheckpointError(f"{error}; {better}") from error
            else:
                return SavedAgent(
                    folder=self._folder,
                    session=session,
                    which=chosen,
                    frame=frame,
                    snapshot=snapshot,
                    file=file,
                    sha256=manifest.files[PARTS[chosen]].sha256,
                )
        raise UsageError(
            f"{self._record.folder}: Session {session} has no checkpoint yet"
        )

    def _choose(self, session: int, manifest: Manifest, which: Which | None) -> Which:
        if which is None:
            if "best" in manifest.files:
                return "best"
            return "latest"
        if PARTS[which] not in manifest.files:
            why = (
                "because no return has been measured; choose the latest (--which "
                "latest)"
            )
            if which == "latest":
                why = "it is a shared run, which has one agent; leave out which"
            where = f"{self._record.folder}: Session {session}"
            raise UsageError(f"{where} has no {which} agent yet, {why}")
        return which


@final
class SavedRun:
    """A run folder with the spec that the run was started with."""

    def __init__(self, source: RunSource) -> None:
        """The run `source.run`, "latest" if it is None. `source.seed` replaces its root
        seed. Raises UsageError if the run does not exist, SpecError for an invalid
        `-s`."""
        name = source.name()
        self.imports = source.imports
        """The modules that were imported for it."""
        run_dir, number = find_saved(source.run or "latest", source.data_dir, name)
        trial = RunRecord(run_dir).number_of_trial(number)
        self.record = RunRecord(run_dir, trial)
        """Of a search, the selected trial."""
        self.folder = source.archive or run_dir.root
        """The run folder, or the file of a shared run."""
        self.agents = SavedAgents(self.record, self.folder)
        file = run_dir.spec_file
        if self.record.of_search:
            file = self.record.spec_file
        saved = load_spec(file, name, warn=False)
        where = self.record.folder
        data_dir = source.data_dir
        check_allowed(where, modules_of(saved), source.imports, data_dir)
        if source.archive is not None:
            options = {"reset_options": saved.env.reset_options}
            refuse_paths(source.archive, {**saved.env.arguments, **options})
        origin = self.record.origin
        keys, refused = typed_settings(origin, source.sets)
        self.spec = load_spec(file, name, keys, warn=False)
        allowed = f"for a saved agent -s can only set {', '.join(MAY_CHANGE)}"
        refused += [
            Problem(path, f"the run was trained with {json.dumps(old)}; {allowed}", new)
            for path, old, new in differences(saved.to_json(), self.spec.to_json())
            if path not in MAY_CHANGE
        ]
        if refused:
            raise SpecError(f"-s for the saved agent of {self.record.folder}", refused)
        self.spec = as_trained(self.spec, origin.get("format"))
        seed = saved.meta.random_seed
        if source.seed is not None:
            seed = source.seed
        self.root_seed = required_seed(run_dir, seed)

    def evaluator(
        self,
        agent: SavedAgent,
        num_envs: int,
        spec: Spec | None = None,
        film: Film | None = None,
    ) -> Evaluator:
        """An evaluator with `agent`; `spec` replaces the run's own. Raises as
        `load_into`."""
        seed = session_seeds(
            self.root_seed, self.record.trial, agent.session
        ).eval_command
        own = (spec or self.spec).of_saved_agent(self.record.trial)
        evaluator = Evaluator(own, num_envs, seed, film)
        with undone_on_failure(evaluator.close):
            agent.load_into(evaluator.networks, evaluator.env.statistics)
        return evaluator

    def stage(self, agent: SavedAgent, render: bool, film: Film | None) -> Evaluator:
        """An evaluator with one environment, with its window open (`render`) or filmed.
        Raises as `evaluator`, and UsageError if its window cannot open."""
        if film is not None:
            return self.evaluator(agent, 1, filmed_spec(self.spec), film)
        env = self.spec.env.model_copy(update={"vectorization_mode": "sync"})
        if not render:
            return self.evaluator(agent, 1, self.spec.model_copy(update={"env": env}))
        shown = env.model_copy(update={"render_mode": "human"})
        with window_of(env):
            return self.evaluator(agent, 1, self.spec.model_copy(update={"env": shown}))

    def play(
        self, agent: SavedAgent, count: int
    ) -> Generator[FinishedEpisodes, None, None]:
        """Yields `count` greedy episodes of `agent`, in `even_num_envs` environments.
        Raises as `Evaluator.finished_episodes`."""
        num_envs = even_num_envs(count, self.spec.env.num_envs)
        with closing(self.evaluator(agent, num_envs)) as evaluator:
            yield from evaluator.finished_episodes(count // num_envs)

    def sessions(self, only: int | None) -> list[int]:
        """The Sessions with agents: all, or `only`. Ranks share the agent of the first
        rank; actors have the agent of their learner. Raises UsageError if `only` has no
        agent."""
        meta = self.spec.meta
        count = meta.num_sessions
        if only is not None and not 0 <= only < count:
            sessions = "only Session 0"
            if count > 1:
                sessions = f"the Sessions 0 to {count - 1}"
            raise UsageError(f"Session {only}: the run has {sessions}")
        if only is not None and only not in meta.writers:
            first = only - only % meta.sessions_per_training
            why = (
                f"it is a rank, and the agent of all ranks is saved by Session {first}"
            )
            if meta.is_actor(only):
                why = (
                    f"it is an actor and saves no agent; its learner is Session {first}"
                )
            raise UsageError(f"Session {only}: {why}; choose Session {first}")
        if only is None:
            return meta.writers
        return [only]


def find_agent(
    run: str,
    which: Which | None,
    session: int | None,
    data_dir: Path,
    imports: Sequence[str],
    trust: bool,
) -> tuple[SavedRun, SavedAgent]:
    """The run that `find_folder` finds, and an agent of it: see `slm_lab.load`."""
    if which not in (None, *PARTS):
        raise UsageError(f"which {which!r}: must be {' or '.join(PARTS)}")
    with ExitStack() as kept:
        folder = kept.enter_context(unpacked(run))
        run_dir, trial = find_folder(folder, data_dir)
        allowed = imports_for(run_dir, imports, trust, data_dir)
        import_plugins(allowed)
        target = str(run_dir.root) if trial is None else f"{run_dir.root}:t{trial}"
        file = str(run_dir.spec_file)
        archive = None
        if folder != run:
            archive = Path(run)
        saved = SavedRun(
            RunSource(
                file, run=target, data_dir=data_dir, imports=allowed, archive=archive
            )
        )
        begun = [
            each
            for each in saved.sessions(session)
            if saved.agents.has_checkpoint(each)
        ]
        if not begun:
            raise UsageError(f"{run_dir.root} has no checkpoint yet")
        agent = saved.agents.load(begun[0], which)
        weakref.finalize(saved, kept.pop_all().close)  # a shared run stays unpacked
    return saved, agent


def find_parent(
    run: str,
    parts: Sequence[str],
    which: Which | None,
    session: int | None,
    data_dir: Path,
) -> Parent:
    """An agent of the run that `find_folder` finds, for a new run to begin with; by
    default that of the first Session with a checkpoint. Imports nothing that the run
    names. Raises UsageError, CheckpointError."""
    with unpacked(run) as folder:
        run_dir, number = find_folder(folder, data_dir)
        record = RunRecord(run_dir).trial_at(number)
        source = run_dir.root
        if folder != run:
            source = Path(run)
        agents = SavedAgents(record, source)
        begun = agents.begun()
        if not begun:
            raise UsageError(f"{source} has no checkpoint yet")
        if session not in (None, *begun):
            known = ", ".join(map(str, begun))
            raise UsageError(
                f"{source}: Session {session} has no agent; those with one: {known}"
            )
        agent = agents.load(begun[0] if session is None else session, which)
        with reading(agent.file):
            check_snapshot(agent.snapshot, agent.file)
            values = values_of(agent.snapshot["flats"])
            statistics = np.asarray(agent.snapshot["statistics"], np.float64)
        spec = record.spec
    rewards = bool(value_at(spec, "env.normalize_reward", False))
    about = {
        "run": source.resolve().name,
        "trial": record.trial,
        "session": agent.session,
        "agent": agent.which,
        "frame": agent.frame,
        "parent_sha256": agent.sha256,
    }
    return Parent(
        source=str(source),
        values=values,
        normalizers=normalizers_in(statistics, rewards),
        parts=tuple(parts),
        net=value_at(spec, "agent.net", {}) or {},
        about=about,
    )


def as_trained(spec: Spec, run_format: object) -> Spec:
    """The spec as the agents of a run of this format were built. Up to format 6 nets
    had no `norm_place`; CrossQ always normalised before the activation."""
    agent = spec.agent
    has_key = isinstance(run_format, int) and run_format >= NORM_PLACE_SINCE
    if has_key or not agent.algorithm.ALWAYS_NORMALISES:
        return spec
    nets = {
        key: net.model_copy(update={"norm_place": "before"})
        for key, net in agent.nets.items()
        if not net.HAS_ARC
    }
    return spec.model_copy(update={"agent": agent.model_copy(update=nets)})
