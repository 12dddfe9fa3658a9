"""A trained agent, for any program that steps environments itself."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import Any, NamedTuple, SupportsFloat, final

import gymnasium
import numpy as np
from torch import nn
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.plugins import import_plugins, listed_texts
from slm_lab.core.types import BoolArray, FloatArray, IntArray, StateDict
from slm_lab.env.convert.nested import element
from slm_lab.env.interface import Env
from slm_lab.export.export import Difference, export_agent
from slm_lab.records.checkpoints import AgentCheckpoint, Which
from slm_lab.records.playable_run import PlayableRun, find_agent
from slm_lab.records.policy import build_policy
from slm_lab.session.build import torch_settings
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.checkpoint import from_bytes, to_bytes


class Episodes(NamedTuple):
    """Whole episodes, in the order in which they ended.

    >>> len(slm_lab.load("latest").evaluate(episodes=2).returns)
    2"""

    returns: FloatArray
    """(K,) float64: the sum of the environment's rewards"""
    lengths: IntArray
    """(K,) int64: steps"""


@final
class Agent:
    """A trained agent of a run: `slm_lab.load` makes it.

    `act` takes observations of `make_env()` and returns its actions. Normalisation,
    frame stacks, the scale of actions and the recurrent state are inside. A pickled or
    copied agent continues alike.

    >>> agent = slm_lab.load("latest")
    >>> env = agent.make_env()
    >>> obs, _ = env.reset(seed=0)
    >>> obs, reward, *_ = env.step(agent.act(obs))
    >>> float(reward)
    1.0
    >>> env.close()"""

    def __init__(self, run: PlayableRun, saved: AgentCheckpoint, seed: int) -> None:
        """The agent `saved` of `run`; random draws depend on `seed`. Raises
        LabError."""
        self._run = run
        self._saved = saved
        with torch_settings(run.spec.meta.threads):
            policy = build_policy(run, saved, seed)
        self._adapter = policy.adapter
        self._actor = policy.actor
        self._starts = np.ones(1, np.bool_)
        self._num: int | None = None
        self._has_ended = False  # an episode of `make_env`, and nothing was reset
        self.folder = run.record.place
        """The run folder, or the file of a shared run."""
        self.spec: Spec = run.spec
        """The spec that the agent was trained with."""
        self.frame = saved.frame
        """The environment steps after which it was saved, over all environments of its
        training."""
        self.observation_space = self._adapter.env_observation_space
        """The space of one observation for `act`, which `make_env()` has too."""
        self.action_space = self._adapter.env_action_space
        """The space of one action of `act`, which `make_env()` has too."""

    @property
    def module(self) -> nn.Module:
        """The policy's network.

        Its input is what `act` makes of observations, (B, ...). Its first output has
        the parameters of the distribution of actions, (B, P): logits, or means and ln
        σ, or Q-values. Raises LabError for the Random agent, which has no network."""
        module = self._actor.module
        if module is None:
            raise LabError(f"{self.spec.agent.algorithm.name} has no network")
        return module

    def make_env(self, **kwargs: Any) -> gymnasium.Env[Any, Any]:
        """One environment as the spec makes it, with its own observations, actions and
        rewards.

        `kwargs` are further arguments of the environment, such as
        `render_mode="human"`. The caller closes it. If the policy remembers its
        episode, a reset of the environment calls `reset` of this agent too. It does not
        after a batch of several observations."""
        env = self._adapter.make_env(**kwargs)
        if self._remembers:
            return _OwnEnv(env, self)
        return env

    def act(self, obs: Any, deterministic: bool = True, *, mask: Any = None) -> Any:
        """The action for one observation, or the actions for a batch of B.

        Args:
            obs: An element of `observation_space`, or a batch with one more axis in
                front. If observations have parts, every part has that axis. The shape
                decides.
            deterministic: The most likely action; else a draw from the policy, with the
                exploration at the end of the training.
            mask: The allowed actions, or B of them, if the environment tells these in
                its info (`env.action_mask`).

        Returns:
            An element of `action_space`, or an array (B, *shape of an action). Of a
            Tuple or Dict, each part is such an array.

        A recurrent policy, and one that stacks frames, remembers the episode: call
        `reset` where one begins. Between two resets B must stay the same for them.

        Raises ValueError for an observation of another shape, or with a number that is
        no finite float32."""
        if not isinstance(deterministic, bool | np.bool_):
            raise ValueError(
                f"deterministic = {deterministic!r:.60}: must be True or False"
            )
        if self._has_ended:
            self._has_ended = False
            warnings.warn(UNRESET, stacklevel=2)
        raw, is_single, _ = self._adapter.batch(obs, mask)
        if len(raw) != self._num:
            self._resize(len(raw))
        inputs = self._adapter.policy_obs(raw, self._starts)
        if deterministic:
            action = self._actor.act_greedily(inputs)
        else:
            action = self._actor.act(inputs, self.frame).action
        self._starts = self._none
        converted = self._adapter.conversions.action.convert(action)
        if is_single:
            return element(self.action_space, converted, 0)
        return converted

    def reset(self, done: bool | Sequence[bool] | BoolArray | None = None) -> None:
        """Forgets the episodes that have ended: all, or those marked in `done` (B,).

        Needed by recurrent policies and frame stacks; harmless for others. After a
        reset of all the next batch may have another size.

        Raises ValueError if `done` does not fit the last batch."""
        self._has_ended = False
        if done is None:
            self._num = None
            return
        try:
            mask = np.atleast_1d(np.asarray(done, np.bool_))
        except RuntimeError as error:  # torch's, as for a tensor with a gradient
            raise ValueError(f"done cannot be read: {error}") from error
        if mask.shape != (self._num,):
            last = f"the last batch had {self._num or 'no'} observations"
            raise ValueError(f"done has the shape {mask.shape}; {last}")
        self._starts = self._starts | mask
        self._actor.end_episodes(mask)

    def evaluate(self, episodes: int = 100) -> Episodes:
        """Plays fresh greedy episodes, as `slm-lab run … eval@RUN` does, and returns
        them all."""
        if index(episodes) < 1:
            raise ValueError(f"episodes = {episodes}: must be at least 1")
        with torch_settings(self.spec.meta.threads):
            played = list(self._run.play(self._saved, episodes))
        return Episodes(
            np.concatenate([part.episode_return for part in played]),
            np.concatenate([part.episode_length for part in played]),
        )

    def export(self, path: str | Path, *, force: bool = False) -> Difference | None:
        """Writes it to one file: .onnx (ONNX), .pt2 (torch.export), or .zip (to share
        and load).

        docs/trained_agents.md describes them. Returns how far a graph differed from
        `act` on observations of `make_env()`. `force` replaces a file that exists.
        Raises as `export_agent`."""
        with torch_settings(self.spec.meta.threads):
            return export_agent(self._run, self._saved, Path(path), force)

    def _begin_episode(self) -> None:
        """Resets it with a reset environment of `make_env`, if that is the only one."""
        if self._num == 1:
            self.reset()

    def _end_episode(self) -> None:
        """Has `act` warn once unless a `reset` comes first."""
        self._has_ended = True

    @property
    def _remembers(self) -> bool:
        """Whether an action depends on earlier observations of the episode."""
        return self._adapter.conversions.joiner is not None or self._actor.is_recurrent

    def _resize(self, num: int) -> None:
        if self._num is not None and self._remembers:
            raise ValueError(
                f"{num} observations after {self._num}: this policy remembers its "
                "episodes; call reset() before the number changes"
            )
        self._num = num
        self._starts = np.ones(num, np.bool_)
        self._none = np.zeros(num, np.bool_)
        self._actor.begin(num)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        module = self._actor.module
        state: StateDict = {
            "snapshot": self._saved.snapshot,
            "weights": None if module is None else module.state_dict(),
            "actor": self._actor.state_dict(),
            "num": self._num,
            "starts": self._starts,
            "joined": self._adapter.joined,
            "has_ended": self._has_ended,
        }
        # tensors would go through shared memory
        saved = replace(self._saved, snapshot={})
        return _restored, (self._run.imports, self._run, saved, bytes(to_bytes(state)))

    def _restore(self, state: StateDict) -> None:
        """Continues as the agent that was pickled with this state."""
        if state["num"] is not None:
            self._resize(state["num"])
        self._starts = state["starts"]
        self._adapter.joined = state["joined"]
        self._has_ended = state["has_ended"]
        if self._actor.module is not None:
            self._actor.module.load_state_dict(state["weights"])
        self._actor.load_state_dict(state["actor"])

    @override
    def __repr__(self) -> str:
        name = f"{self.spec.agent.algorithm.name} on {self.spec.env.name}"
        return (
            f"<Agent {name}, {self._saved.which} at frame {self.frame:,} of "
            f"{self.folder}>"
        )


UNRESET = (
    "an episode has ended, and this policy remembers its episodes: call reset() of "
    "the agent where one begins, or reset(done) for a batch"
)


@final
class _OwnEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that tells a policy with a memory where its episodes begin and
    end."""

    def __init__(self, env: Env, agent: Agent) -> None:
        super().__init__(env)
        self._agent = agent

    @override
    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._agent._begin_episode()
        return self.env.reset(**kwargs)

    @override
    def step(
        self, action: Any
    ) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        if result[2] or result[3]:
            self._agent._end_episode()
        return result


def _restored(
    imports: Sequence[str], run: PlayableRun, saved: AgentCheckpoint, content: bytes
) -> Agent:
    """The agent of a pickle, in a process that may not have imported its plug-ins
    yet."""
    import_plugins(imports)
    state = from_bytes(content)
    agent = Agent(run, replace(saved, snapshot=state["snapshot"]), seed=0)
    agent._restore(state)
    return agent


def load(
    run: str | os.PathLike[str],
    *,
    which: Which | None = None,
    session: int | None = None,
    seed: int = 0,
    data: str | Path = "data",
    imports: Sequence[str] = (),
    trust: bool = False,
) -> Agent:
    """A trained agent of a run.

    >>> slm_lab.load("latest", which="best", session=0)
    <Agent PPO on CartPole-v1, best at frame ... of ...>

    Args:
        run: A `Run`, a run folder, its name in `data` or a unique prefix of the name.
            "latest" is the newest run in `data`. FOLDER:tN is a trial of a search, by
            default the best one. FILE.zip is a shared run.
        which: "best" or "latest"; by default the best, or the latest if there is no
            best.
        session: The number of the Session; by default the first that saved an agent.
        seed: Seeds the draws of `act(deterministic=False)`, at least 0.
        data: The folder of run folders.
        imports: Modules that the run folder may import: it names those that its
            environment and its own parts are in.
        trust: Whether it may import all modules that it names.

    Raises:
        UsageError: There is no such run or agent, or the run names modules that are not
            allowed.
        CheckpointError: The agent's file is damaged.
        ValueError: `seed` is negative."""
    if index(seed) < 0:
        raise ValueError(f"seed = {seed}: must be at least 0")
    if session is not None:
        session = index(session)
    saved, agent = find_agent(
        run=os.fspath(run),
        which=which,
        session=session,
        data_dir=Path(data),
        imports=listed_texts(imports),
        trust=trust,
    )
    return Agent(saved, agent, seed)
