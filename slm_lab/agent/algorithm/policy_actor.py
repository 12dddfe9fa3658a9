"""The actor of every algorithm that samples from a policy."""

import torch

from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.batch import Act
from slm_lab.agent.distribution import DistributionFamily
from slm_lab.agent.net.policy_value import ActingNetwork
from slm_lab.core.types import Array, StateDict


class PolicyActor(Actor):
    """Samples from π(a|s) and notes log π and V in the same pass."""

    def __init__(
        self, network: ActingNetwork, family: DistributionFamily, generator: torch.Generator
    ) -> None:
        self._network = network
        self._family = family
        self._generator = generator
        self.version = 0

    @torch.inference_mode()
    def act(self, obs: Array) -> Act:
        """One forward pass for all environments."""
        network = self._network
        params, value = network.act(torch.from_numpy(obs).to(network.device))
        policy = self._family(params.cpu())
        action = policy.sample(self._generator)
        return Act(
            action.numpy(),
            policy.log_prob(action).numpy(),
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
