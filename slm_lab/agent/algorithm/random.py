"""The agent that learns nothing: the baseline of every score."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import Actor, AgentParts, BuildContext, Learner
from slm_lab.agent.batch import Act
from slm_lab.agent.optim.optimizer import TrainState
from slm_lab.core.actions import RandomActions
from slm_lab.core.observation import ObservationLayout
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array


class RandomActor(SavedFields, Actor):
    """Draws uniformly from the action space, with a mask among allowed actions."""

    saved: ClassVar = {"generator": "_actions.generator"}

    def __init__(
        self,
        action_space: gymnasium.Space[Any],
        num_envs: int,
        seed: int,
        layout: ObservationLayout,
    ) -> None:
        self._action_space = action_space
        self._layout = layout
        self._actions = RandomActions(action_space, num_envs, seed, layout)
        self.version = 0
        self.explore_var = None

    @override
    def begin(self, num_envs: int) -> None:
        state = self.state_dict()
        self._actions = RandomActions(
            self._action_space, num_envs, seed=0, layout=self._layout
        )
        self.load_state_dict(state)

    @override
    def act(self, obs: Array, frame: int) -> Act:
        no_number = np.full(len(obs), np.nan, np.float32)
        return Act(self._actions.draw(obs), no_number, no_number, 0)

    @override
    def act_greedily(self, obs: Array) -> Array:
        """A random draw: no action is more likely than another."""
        return self._actions.draw(obs)[: len(obs)]


class Random(Learner[object]):
    """A learner that has nothing to learn."""

    metric_names = ()

    def __init__(self) -> None:
        super().__init__(TrainState({}))

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """An actor for any action space."""
        actor = RandomActor(
            context.action_space,
            context.num_envs,
            context.seeds.action,
            layout=context.layout,
        )
        space = context.action_space
        return AgentParts(
            actor=actor,
            learner=cls(),
            horizon=1,
            action_shape=space.shape or (),
            action_dtype=np.dtype(space.dtype or np.int64),
        )

    @override
    def learn(self, batch: object, frame: int) -> dict[str, float]:
        return {}
