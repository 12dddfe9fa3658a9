"""Greedy episodes of an agent in separate environments, during and after training."""

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, final

import numpy as np
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import LabError, undone_on_failure
from slm_lab.core.state import SavedFields
from slm_lab.core.text import error_text
from slm_lab.core.types import FloatArray, StateDict
from slm_lab.env.failure import EnvironmentFailedError
from slm_lab.env.make import make_env
from slm_lab.env.simulators.film import Film
from slm_lab.env.vector.raw import CopyMarks
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.metrics.tracker import EvaluationTracker
from slm_lab.session.play_episodes import finished_episodes, join_episodes, step_bound
from slm_lab.spec.schema.spec import Spec


@final
class Evaluator(SavedFields):
    """An agent without memory that only acts, in `num_envs` separate copies.
    Weights and the normalisers' statistics are loaded from a training and do not
    change. All random draws (first states, the Random agent's actions) depend only on
    `seed`. `film` receives the episodes of a single environment; for it, `process_seed`
    and `marks` see `make_env`."""

    saved: ClassVar = {"env": "env", "actor": "_actor"}

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        seed: int,
        film: Film | None = None,
        process_seed: int | None = None,
        marks: CopyMarks | None = None,
    ) -> None:
        env_seed, *agent_seeds = np.random.SeedSequence(seed).generate_state(4)
        env_spec = spec.env.model_copy(update={"num_envs": num_envs})
        self._name = f"evaluation on {spec.env.name}"
        self._max_steps = step_bound(spec.env)
        self.env = make_env(
            env_spec,
            int(env_seed),
            training=False,
            film=film,
            process_seed=seed if process_seed is None else process_seed,
            marks=marks,
        )
        with undone_on_failure(self.env.close):
            # seeds the generators; before it there is no state to save
            self.env.reset()
            self._agent = build_agent(
                spec.agent.for_acting(),
                self.env.layout,
                self.env.action_space,
                num_envs=self.env.num_envs,
                seeds=AgentSeeds(*(int(agent_seed) for agent_seed in agent_seeds)),
            )
        self._actor = self._agent.actor
        self.networks = self._agent.learner.flats

    def load_snapshot(self, snapshot: StateDict) -> None:
        """Loads the weights ("flats") and "statistics" of a snapshot, as saved in
        "best"."""
        load_snapshot(snapshot, self.networks, self.env.statistics)
        self.env.set_frame(frame_of(snapshot))

    def play(self, per_env: int) -> FinishedEpisodes:
        """Plays `per_env` fresh episodes per environment. Raises LabError if one never
        ends."""
        return join_episodes(list(self.finished_episodes(per_env)))

    def finished_episodes(
        self, per_env: int, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[FinishedEpisodes]:
        """Yields each episode of `play` as it ends; fewer if `stop` becomes true.
        Raises EnvironmentFailedError if an environment raises an exception of its
        own."""
        actor = self._actor
        actor.end_episodes(np.ones(self.env.num_envs, np.bool_))
        limits = self._name, self._max_steps, stop
        try:
            yield from finished_episodes(
                self.env, actor.act_greedily, per_env, *limits, ended=actor.end_episodes
            )
        except LabError:
            raise
        except Exception as error:
            if self.env.has_failed:
                raise EnvironmentFailedError(
                    f"{self._name}: {error_text(error)}"
                ) from error
            raise

    def close(self) -> None:
        """Frees the environments."""
        self.env.close()


def load_snapshot(
    snapshot: StateDict, networks: Mapping[str, FlatParameters], statistics: FloatArray
) -> None:
    """Copies a snapshot's weights and statistics into the `networks` and `statistics`
    (S,)."""
    for name, flat in networks.items():
        flat.load_state_dict(snapshot["flats"][name])
    statistics[:] = snapshot["statistics"]


def frame_of(snapshot: StateDict) -> int:
    """The trial's clock when a snapshot was taken; in old files the Session's."""
    return int(snapshot["total_frame" if "total_frame" in snapshot else "frame"])


def snapshot_of(state: StateDict) -> StateDict:
    """The agent's snapshot (the "best" part) from a Session's full state (the "state"
    part)."""
    optimizers = state["agent"]["learner"]["train_state"].items()
    return {
        "frame": state["frame"],
        "total_frame": sum(state["frames"]),
        "flats": {name: optimizer["flat"] for name, optimizer in optimizers},
        "statistics": state["env"]["statistics"],
    }


@final
class RigorousEval(SavedFields):
    """Plays one greedy episode in each of `num_envs` environments whenever `tracker` is
    due. It shares only a snapshot with the training: no generator, weights or
    statistics. So evaluation does not affect training."""

    saved: ClassVar = {"evaluator": "_evaluator", "tracker": "tracker"}

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        seed: int,
        process_seed: int,
        marks: CopyMarks | None = None,
    ) -> None:
        self._evaluator = Evaluator(
            spec, num_envs, seed, process_seed=process_seed, marks=marks
        )
        self.tracker = EvaluationTracker(
            spec.meta.eval_frequency,
            spec.env.max_frame,
            info_keys=spec.env.info_keys,
            agents=self._evaluator.env.shown_agents,
        )
        self._before = self._evaluator.state_dict()

    def play(
        self, snapshot: StateDict, stop: Callable[[], bool]
    ) -> FinishedEpisodes | None:
        """The episodes of the agent in `snapshot`. Raises LabError if one does not end.
        Returns None if `stop` became true before all ended; `take_back` then rolls it
        back. None also after an earlier failure."""
        if self.has_failed:
            return None
        self._before = self._evaluator.state_dict()
        self._evaluator.load_snapshot(snapshot)
        was_stopped = False

        def is_stopped() -> bool:
            nonlocal was_stopped
            was_stopped = stop()
            return was_stopped

        parts = list(self._evaluator.finished_episodes(1, is_stopped))
        if was_stopped:
            return None
        return join_episodes(parts)

    @property
    def has_failed(self) -> bool:
        """Whether an environment has raised an exception."""
        return self._evaluator.env.has_failed

    def take_back(self) -> None:
        """Rolls back the last evaluation."""
        if not self.has_failed:
            self._evaluator.load_state_dict(self._before)

    @override
    def state_dict(self) -> StateDict:
        """The state; after a failure, the state before the evaluation."""
        if self.has_failed:
            return {"evaluator": self._before, "tracker": self.tracker.state_dict()}
        return super().state_dict()

    def close(self) -> None:
        """Frees the environments."""
        self._evaluator.close()
