"""The actor of every algorithm that samples from a policy."""

import torch

from slm_lab.agent.algorithm.action_policy import ActionPolicy
from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.batch import Act
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.net.policy_value import ActingNetwork
from slm_lab.core.types import Array, StateDict


class PolicyActor(Actor):
    """Draws from the policy as the action policy says, and notes log π and V in the same pass."""

    def __init__(
        self,
        network: ActingNetwork,
        family: DistributionFamily,
        action_policy: ActionPolicy,
        generator: torch.Generator,
    ) -> None:
        self._network = network
        self._family = family
        self._action_policy = action_policy
        self._generator = generator
        self.version = 0
        self.explore_var = action_policy.explore_var(0)

    @torch.inference_mode()
    def act(self, obs: Array, frame: int) -> Act:
        """One forward pass for all environments."""
        network = self._network
        self.explore_var = self._action_policy.explore_var(frame)
        params, value = network.act(torch.from_numpy(obs).to(network.device))
        policy = self._action_policy(params.cpu(), frame)
        action, log_prob = policy.sample_with_log_prob(self._generator)
        return Act(
            action.numpy(),
            log_prob.numpy(),
            value.cpu().numpy(),
            self.version,
        )

    @torch.inference_mode()
    def act_greedily(self, obs: Array) -> Array:
        """The mode of the policy."""
        network = self._network
        params = network.policy(torch.from_numpy(obs).to(network.device))
        action: Array = self._family(params.cpu()).mode().numpy()
        return action

    def state_dict(self) -> StateDict:
        """The generator of the actions."""
        return {"generator": self._generator.get_state(), "version": self.version}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the generator."""
        self._generator.set_state(state["generator"])
        self.version = int(state["version"])
