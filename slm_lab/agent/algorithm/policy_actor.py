"""The actor of every algorithm that samples from a policy."""

import torch

from slm_lab.agent.algorithm.action_policy import ActionPolicy
from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.batch import Act
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.generators import Generators
from slm_lab.agent.net.policy_value import ActingNetwork
from slm_lab.core.types import Array, StateDict


class PolicyActor(Actor):
    """Draws from the policy as the action policy says, and notes log π and V in the same pass."""

    def __init__(
        self,
        network: ActingNetwork,
        family: DistributionFamily,
        action_policy: ActionPolicy,
        generators: Generators,
    ) -> None:
        self._network = network
        self._family = family
        self._action_policy = action_policy
        self._generators = generators
        self.version = 0
        self.explore_var = action_policy.explore_var(0)

    def act(self, obs: Array, frame: int) -> Act:
        """One forward pass for all environments."""
        self.explore_var = self._action_policy.explore_var(frame)
        params, value = self._network.act(obs)
        action, log_prob = self._action_policy(params, frame).draw(self._generators)
        return Act(action, log_prob, value, self.version)

    @torch.inference_mode()
    def act_greedily(self, obs: Array) -> Array:
        """The mode of the policy."""
        params, _ = self._network.act(obs)
        action: Array = self._family(torch.from_numpy(params)).mode().numpy()
        return action

    def state_dict(self) -> StateDict:
        """The generators of the actions."""
        return {"generators": self._generators.state_dict(), "version": self.version}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the generators."""
        self._generators.load_state_dict(state["generators"])
        self.version = int(state["version"])
