"""The actor of every algorithm that samples from a policy."""

import torch
from typing_extensions import override

from slm_lab.agent.algorithm.action_policy import ActionPolicy
from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.batch import Act
from slm_lab.agent.distribution.exploration import ExplorationPolicy
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.generators import Generators
from slm_lab.agent.net.policy_value import ActingNetwork
from slm_lab.agent.recurrent_state import RecurrentState
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
        recurrent: RecurrentState | None = None,
        warmup: ExplorationPolicy | None = None,
    ) -> None:
        self._network = network
        self._family = family
        self._action_policy = action_policy
        self._generators = generators
        self._recurrent = recurrent
        self._warmup = warmup
        self.version = 0
        self.explore_var = action_policy.explore_var(0)

    @override
    def act(self, obs: Array, frame: int) -> Act:
        """One forward pass for all environments."""
        self.explore_var = self._action_policy.explore_var(frame)
        params, value, state = self._network.act(self.seen(obs))
        if self._warmup is not None and self.version == 0:
            draws = self._warmup(params, 0.0)
        else:
            draws = self._action_policy(params, self.explore_var)
        action, log_prob = draws.draw(self._generators)
        state_around = None
        if self._recurrent is not None and state is not None:
            state_around = self._recurrent.move_on(state)
        return Act(action, log_prob, value, self.version, state_around)

    @torch.inference_mode()
    @override
    def act_greedily(self, obs: Array) -> Array:
        """The mode of the policy."""
        params, _, state = self._network.act(self.seen(obs))
        if self._recurrent is not None and state is not None:
            self._recurrent.move_on(state)
        action: Array = self._family(torch.from_numpy(params)).mode().numpy()
        return action

    @override
    def seen(self, obs: Array) -> Array:
        return obs if self._recurrent is None else self._recurrent.packed_obs(obs)

    @override
    def end_episodes(self, ended: BoolArray) -> None:
        if self._recurrent is not None:
            self._recurrent.reset(ended)

    @override
    def state_dict(self) -> StateDict:
        """The generators of the actions, and what is remembered."""
        return {
            "generators": self._generators.state_dict(),
            "version": self.version,
            "recall": None if self._recurrent is None else self._recurrent.state_dict(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores both."""
        self._generators.load_state_dict(state["generators"])
        self.version = int(state["version"])
        if self._recurrent is not None:
            self._recurrent.load_state_dict(state["recall"])
