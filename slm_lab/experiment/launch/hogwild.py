"""What a Trial's parent does for Hogwild! workers: makes what they share, and asks them to save."""

import time
from typing import final

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.env.make import make_env
from slm_lab.experiment.checkpoint import CheckpointStore
from slm_lab.experiment.hogwild import GlobalState, Mode
from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.seeding import session_seeds
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.spec import Spec

SHORTEST_INTERVAL = 1.0
"""Seconds between two checkpoints at least: all workers stand still for them."""


def global_state(
    spec: Spec, mode: Mode, run_dir: RunDir, trial: int, root_seed: int, resume: bool
) -> GlobalState:
    """Weights, optimizer state and statistics as the first worker alone would begin with them.

    With `resume` they are those of the newest checkpoint that has them.
    Raises LabError where shared memory has no room for them.
    """
    seeds = session_seeds(root_seed, trial, 0)
    one = spec.env.model_copy(update={"num_envs": 1, "vectorization_mode": "sync"})
    env = make_env(one, seeds.env, gamma=spec.agent.algorithm.gamma or 1.0)
    try:
        agent = build_agent(
            _on_cpu(spec.agent),
            env.observation_space,
            env.action_space,
            env.num_envs,
            AgentSeeds(seeds.init, seeds.action, seeds.sampling),
            scratch=run_dir.session(trial, 0).models,
        )
        state = GlobalState.of(mode, agent, env, spec.meta.max_session)
    finally:
        env.close()
    if resume:
        _restore(state, spec, run_dir, trial)
    return state


def _on_cpu(agent: AgentSpec) -> AgentSpec:
    nets = {"net": agent.net, "critic_net": agent.critic_net}
    moved = {k: n.model_copy(update={"gpu": False}) for k, n in nets.items() if n is not None}
    return agent.model_copy(update=moved)


def _restore(state: GlobalState, spec: Spec, run_dir: RunDir, trial: int) -> None:
    newest = -1
    for session in range(spec.meta.max_session):
        paths = run_dir.session(trial, session)
        store = CheckpointStore(paths.models, paths.prefix)
        manifest = store.manifest()
        saved = None if manifest is None else store.load(manifest)
        if saved is not None and state.is_in(saved) and saved["total_frame"] > newest:
            newest = int(saved["total_frame"])
            state.load(saved)


@final
class Checkpoints:
    """Asks the workers for a checkpoint from time to time."""

    def __init__(self, board: Board, interval: float) -> None:
        self._board = board
        self._interval = max(interval, SHORTEST_INTERVAL)
        self._last = time.monotonic()

    def tick(self) -> None:
        """To be called a few times a second."""
        board = self._board
        running = [s for s in range(board.num_sessions) if board.phase(s) == Phase.RUNNING]
        pending = any(board.copied[session] < board.save_requested for session in running)
        if running and not pending and time.monotonic() - self._last >= self._interval:
            board.request_save()
            self._last = time.monotonic()
