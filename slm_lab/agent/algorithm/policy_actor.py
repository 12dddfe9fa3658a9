"""The actor of every algorithm that samples from a policy."""

import torch

from slm_lab.agent.algorithm.action_policy import ActionPolicy
from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.batch import Act
from slm_lab.agent.distribution.behaviour import Behaviour
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.generators import Generators
from slm_lab.agent.net.policy_value import ActingNetwork
from slm_lab.agent.recall import Recall
from slm_lab.core.types import Array, BoolArray, StateDict


class PolicyActor(Actor):
    """Draws from the policy as the action policy says, and notes log π and V in the same pass.

    With a `warmup` it acts by that until its weights have seen a first training event.
    """

    def __init__(
        self,
        network: ActingNetwork,
        family: DistributionFamily,
        action_policy: ActionPolicy,
        generators: Generators,
        recall: Recall | None = None,
        warmup: Behaviour | None = None,
    ) -> None:
        self._network = network
        self._family = family
        self._action_policy = action_policy
        self._generators = generators
        self._recall = recall
        self._warmup = warmup
        self.version = 0
        self.explore_var = action_policy.explore_var(0)

    def act(self, obs: Array, frame: int) -> Act:
        """One forward pass for all environments."""
        self.explore_var = self._action_policy.explore_var(frame)
        params, value, state = self._network.act(self.seen(obs))
        if self._warmup is not None and self.version == 0:
            draws = self._warmup(params, 0.0)
        else:
            draws = self._action_policy(params, self.explore_var)
        action, log_prob = draws.draw(self._generators)
        recalled = None
        if self._recall is not None and state is not None:
            recalled = self._recall.move_on(state)
        return Act(action, log_prob, value, self.version, recalled)

    @torch.inference_mode()
    def act_greedily(self, obs: Array) -> Array:
        """The mode of the policy."""
        params, _, state = self._network.act(self.seen(obs))
        if self._recall is not None and state is not None:
            self._recall.move_on(state)
        action: Array = self._family(torch.from_numpy(params)).mode().numpy()
        return action

    def seen(self, obs: Array) -> Array:
        """See `Actor.seen`."""
        return obs if self._recall is None else self._recall.rows(obs)

    def end_episodes(self, ended: BoolArray) -> None:
        """See `Actor.end_episodes`."""
        if self._recall is not None:
            self._recall.forget(ended)

    def state_dict(self) -> StateDict:
        """The generators of the actions, and what is remembered."""
        return {
            "generators": self._generators.state_dict(),
            "version": self.version,
            "recall": None if self._recall is None else self._recall.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores both."""
        self._generators.load_state_dict(state["generators"])
        self.version = int(state["version"])
        if self._recall is not None:
            self._recall.load_state_dict(state["recall"])
