"""Read-only access to the spec and the agents of a saved run. Needs no lock of the
run."""

import json
import weakref
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import final

from slm_lab.core.errors import (
    Problem,
    SpecError,
    UsageError,
    undone_on_failure,
)
from slm_lab.core.plugins import import_plugins
from slm_lab.core.recorded import differences
from slm_lab.env.simulators.film import Film
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.env.window import window_of
from slm_lab.records.checkpoints import PARTS, AgentCheckpoint, Which
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
from slm_lab.session.evaluator import Evaluator, frame_of
from slm_lab.session.play_episodes import even_num_envs
from slm_lab.session.seeding import session_seeds
from slm_lab.session.video import filmed_spec
from slm_lab.spec.load import load_spec
from slm_lab.spec.schema.spec import Spec

NORM_PLACE_SINCE = 7
"""The first format of run folders whose specs have `norm_place`."""

CHANGES_OF_PLAY = (
    "env.max_t",
    "env.num_envs",
    "env.vectorization_mode",
    "env.image_channels",
    "agent.net.gpu",
    "meta.threads",
)
"""Keys that `-s` may change: how the agent runs, not the agent itself."""


@final
class PlayableRun:
    """A run whose agents can play: its record, and the spec that they play under."""

    def __init__(self, source: RunSource) -> None:
        """The run `source.run`, "latest" if it is None. `source.seed` replaces its root
        seed. Raises UsageError if the run does not exist, SpecError for an invalid
        `-s`."""
        name = source.name()
        self.imports = source.imports
        """The modules that were imported for it."""
        run_dir, number = find_saved(source.run or "latest", source.data_dir, name)
        run = RunRecord(run_dir, archive=source.archive)
        self.record = run.trial_record(run.number_of_trial(number))
        """The record of the run, or of the selected trial of a search."""
        self.checkpoints = self.record.checkpoints
        file = run_dir.spec_file
        if self.record.is_trial_of_search:
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
        allowed = f"for a saved agent -s can only set {', '.join(CHANGES_OF_PLAY)}"
        refused += [
            Problem(path, f"the run was trained with {json.dumps(old)}; {allowed}", new)
            for path, old, new in differences(saved.to_json(), self.spec.to_json())
            if path not in CHANGES_OF_PLAY
        ]
        if refused:
            raise SpecError(f"-s for the saved agent of {self.record.folder}", refused)
        self.spec = as_trained(self.spec, origin.get("format"))
        seed = saved.meta.random_seed
        if source.seed is not None:
            seed = source.seed
        self.root_seed = required_seed(run_dir, seed)
        self.agents: tuple[str, ...] = ()
        """The agents of its environment whose returns an evaluator tells apart."""

    def evaluator(
        self,
        agent: AgentCheckpoint,
        num_envs: int,
        spec: Spec | None = None,
        film: Film | None = None,
    ) -> Evaluator:
        """An evaluator with `agent`; `spec` replaces the run's own. Raises as
        `load_into`."""
        seed = session_seeds(
            self.root_seed, self.record.trial, agent.session
        ).eval_command
        acting_spec = (spec or self.spec).of_saved_agent(self.record.trial)
        env = acting_spec.env.at_frame(frame_of(agent.snapshot))
        acting_spec = acting_spec.model_copy(update={"env": env})
        evaluator = Evaluator(acting_spec, num_envs, seed, film)
        with undone_on_failure(evaluator.close):
            agent.load_into(evaluator.networks, evaluator.env.statistics)
        self.agents = evaluator.env.shown_agents
        return evaluator

    def stage(
        self, agent: AgentCheckpoint, render: bool, film: Film | None
    ) -> Evaluator:
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
        self, agent: AgentCheckpoint, count: int
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
            reason = (
                f"it is a rank, and the agent of all ranks is saved by Session {first}"
            )
            if meta.is_actor(only):
                reason = (
                    f"it is an actor and saves no agent; its learner is Session {first}"
                )
            raise UsageError(f"Session {only}: {reason}; choose Session {first}")
        if only is None:
            return meta.writers
        return [only]


def find_agent(
    run: str,
    data_dir: Path,
    imports: Sequence[str],
    trust: bool,
    which: Which | None = None,
    session: int | None = None,
) -> tuple[PlayableRun, AgentCheckpoint]:
    """The run that `find_folder` finds, and an agent of it: see `slm_lab.load`."""
    if which not in (None, *PARTS):
        raise UsageError(f"which {which!r}: must be {' or '.join(PARTS)}")
    with ExitStack() as stack:
        asked = RunSource(run=run, data_dir=data_dir)
        source = stack.enter_context(asked.unpacked())
        run_dir, trial = find_folder(source.run or "", data_dir)
        allowed = imports_for(run_dir, imports, trust, data_dir)
        import_plugins(allowed)
        target = str(run_dir.root) if trial is None else f"{run_dir.root}:t{trial}"
        file = str(run_dir.spec_file)
        saved = PlayableRun(
            replace(source, spec_file=file, run=target, imports=allowed)
        )
        begun = [
            number
            for number in saved.sessions(session)
            if saved.checkpoints.has_checkpoint(number)
        ]
        if not begun:
            raise UsageError(f"{run_dir.root} has no checkpoint yet")
        agent = saved.checkpoints.load(begun[0], which)
        weakref.finalize(saved, stack.pop_all().close)  # a shared run stays unpacked
    return saved, agent


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
