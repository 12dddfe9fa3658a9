"""What a run has left behind, to look at. Nothing here writes, and nothing waits for its lock."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final

from slm_lab.core.errors import CheckpointError, Problem, SpecError, UsageError
from slm_lab.core.types import StateDict
from slm_lab.env.film import Film
from slm_lab.experiment.checkpoint import CheckpointStore, reading
from slm_lab.experiment.consent import check_allowed, modules_of
from slm_lab.experiment.continued import differences
from slm_lab.experiment.evaluate import Evaluator, snapshot_of
from slm_lab.experiment.fit import check_fits
from slm_lab.experiment.manifest import Manifest, read_manifest
from slm_lab.experiment.origin import typed_settings
from slm_lab.experiment.recorded import asked_spec_name, find_saved, recorded_seed
from slm_lab.experiment.run_dir import RunDir, origin_of
from slm_lab.experiment.search.outcomes import best_first
from slm_lab.experiment.search.record import Standing
from slm_lab.experiment.seeding import session_seeds
from slm_lab.spec.load import load_spec
from slm_lab.spec.schema.algorithm import CrossQSpec
from slm_lab.spec.schema.net import TorchArcNetSpec
from slm_lab.spec.schema.spec import Spec

Which: TypeAlias = Literal["best", "latest"]

PARTS: dict[Which, str] = {"best": "best", "latest": "state"}
"""The part of a checkpoint that holds each agent."""

NORM_PLACE_SINCE = 7
"""The first format of run folders whose specs say where normalisation stands."""

MAY_CHANGE = ("env.max_t", "env.vectorization_mode", "agent.net.gpu", "meta.threads")
"""What `-s` may change: how the agent is run, not what it is."""


@dataclass(frozen=True)
class SavedRunRequest:
    """Which run, and what may be said about it on the command line."""

    spec_file: str
    spec_name: str | None
    run: str
    """ "latest", a folder, or its name in the data folder"""
    sets: tuple[str, ...] = ()
    seed: int | None = None
    data_dir: Path = Path("data")
    imports: tuple[str, ...] = ()
    """Modules that are imported by now; of those that the run names no others are."""


@dataclass(frozen=True)
class SavedAgent:
    """One agent of the run in `folder`, as it was saved at `frame`."""

    folder: Path
    session: int
    which: Which
    frame: int
    snapshot: StateDict
    """Its weights and statistics."""
    file: Path
    """Where they were saved."""

    def load_into(self, evaluator: Evaluator) -> None:
        """Has `evaluator` act with them.

        Raises CheckpointError where the spec in the folder was changed and builds other ones.
        """
        with reading(self.file):
            check_fits(self.snapshot, evaluator.networks, evaluator.env.statistics, self.file)
            evaluator.load_snapshot(self.snapshot)


@final
class SavedRun:
    """A run folder with the spec that the run was started with."""

    def __init__(self, request: SavedRunRequest) -> None:
        """Raises UsageError where there is no such run, SpecError for a `-s` that makes no sense.

        `seed` stands in for the run's root seed.
        """
        name = asked_spec_name(request.spec_file, request.spec_name)
        self.run_dir, trial = find_saved(request.run, request.data_dir, name)
        self.trial = _trial(self.run_dir, trial)
        self.is_search = self.run_dir.search_record.is_file()
        """Whether it is of many trials, of which `trial` is meant."""
        file = self.run_dir.spec_file
        if self.is_search:
            file = self.run_dir.trial_spec_file(self.trial)
        saved = load_spec(file, name, warn=False)
        where, data_dir = self.run_dir.root, request.data_dir
        check_allowed(where, modules_of(saved), request.imports, data_dir)
        origin = origin_of(self.run_dir.spec_file)
        keys, refused = typed_settings(origin, request.sets)
        self.spec = load_spec(file, name, keys, warn=False)
        refused += [
            Problem(path, _why_refused(old), new, has_value=True)
            for path, old, new in differences(saved.to_json(), self.spec.to_json())
            if path not in MAY_CHANGE
        ]
        if refused:
            raise SpecError(f"{self.run_dir.root}: what was set for a saved agent", refused)
        self.spec = as_trained(self.spec, origin.get("format"))
        seed = saved.meta.random_seed if request.seed is None else request.seed
        self.root_seed = recorded_seed(self.run_dir, seed)

    def evaluator(
        self, session: int, num_envs: int, spec: Spec | None = None, film: Film | None = None
    ) -> Evaluator:
        """Environments for the agents of a Session; `spec` stands in for the run's own."""
        seed = session_seeds(self.root_seed, self.trial, session).eval_command
        return Evaluator(spec or self.spec, num_envs, seed, film)

    def sessions(self, only: int | None) -> list[int]:
        """The Sessions to look at: all, of ranks with one agent the first, of actors and a learner
        the learner, or the one that was asked for. Raises UsageError."""
        meta = self.spec.meta
        count = meta.num_sessions
        if only is not None and only >= count:
            raise UsageError(f"--session {only}: the run has the Sessions 0 to {count - 1}")
        if only is not None and only not in meta.writers:
            first = only - only % meta.sessions_per_training
            why = f"it is a rank, and its agent is that of Session {first}, which keeps it for all"
            if meta.is_actor(only):
                why = f"it only acts, and saves no agent of its own; its learner is Session {first}"
            raise UsageError(f"--session {only}: {why}; use --session {first}")
        return meta.writers if only is None else [only]

    def has_checkpoint(self, session: int) -> bool:
        """Whether anything of a Session has been saved yet."""
        return read_manifest(self.run_dir.session(self.trial, session).manifest) is not None

    def load(self, session: int, which: Which | None) -> SavedAgent:
        """The agent of a Session; by default the best one, or the latest where there is no best.

        Raises UsageError where there is none, CheckpointError where its file is damaged.
        """
        paths = self.run_dir.session(self.trial, session)
        store = CheckpointStore(paths.models, paths.prefix)
        manifest = store.manifest()
        while manifest is not None:
            chosen = self._choose(session, manifest, which)
            try:
                state = store.load(manifest, PARTS[chosen])
                file = store.file(manifest, PARTS[chosen])
                with reading(file):
                    snapshot = state if chosen == "best" else snapshot_of(state)
                    frame = int(snapshot["frame"])
            except CheckpointError as error:
                before, manifest = manifest, store.manifest()
                if manifest == before:  # else a training has replaced it meanwhile
                    if chosen == "best" and _is_whole(store, manifest):
                        raise CheckpointError(f"{error}; use --which latest") from error
                    raise
            else:
                root = self.run_dir.root
                return SavedAgent(root, session, chosen, frame, snapshot, file)
        raise UsageError(f"{self.run_dir.root}: Session {session} has no checkpoint yet")

    def _choose(self, session: int, manifest: Manifest, which: Which | None) -> Which:
        if which is None:
            return "best" if "best" in manifest.files else "latest"
        if PARTS[which] not in manifest.files:
            raise UsageError(
                f"{self.run_dir.root}: Session {session} has no best agent yet, because no return "
                "has been measured; use --which latest"
            )
        return which


def as_trained(spec: Spec, run_format: object) -> Spec:
    """The spec of a run of this format, with what its agents were built by.

    Up to format 6 nets had no `norm_place`, and CrossQ normalised before the activation only.
    """
    agent = spec.agent
    has_key = isinstance(run_format, int) and run_format >= NORM_PLACE_SINCE
    if has_key or not isinstance(agent.algorithm, CrossQSpec):
        return spec
    nets = {
        key: net.model_copy(update={"norm_place": "before"})
        for key, net in agent.nets.items()
        if not isinstance(net, TorchArcNetSpec)
    }
    return spec.model_copy(update={"agent": agent.model_copy(update=nets)})


def _trial(run_dir: RunDir, asked: int | None) -> int:
    """Of a search the trial that is named, or the best; a run has one. Raises UsageError."""
    if not run_dir.search_record.is_file():
        if asked:
            raise UsageError(f"{run_dir.root} is no search: it has no trial t{asked}")
        return 0
    standing = Standing.of_record(run_dir.search_record)
    best = [its.trial for its in best_first(standing) if its.has_begun]
    if not best or (asked is not None and asked not in best):
        there = ", ".join(f"t{trial}" for trial in sorted(best)) or "none"
        raise UsageError(f"{run_dir.root} has no such trial; it has {there}")
    confirmed = [found.trial for found in standing.results if found.mean is not None]
    return (confirmed or best)[0] if asked is None else asked


def _is_whole(store: CheckpointStore, manifest: Manifest) -> bool:
    """Whether the latest agent can be read."""
    try:
        store.load(manifest, PARTS["latest"])
    except CheckpointError:
        return False
    return True


def _why_refused(old: object) -> str:
    return (
        f"the run was trained with {json.dumps(old)}; a saved agent can only be given "
        f"{', '.join(MAY_CHANGE)}"
    )
