"""The actor of every algorithm that samples from a policy."""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import gymnasium
import torch
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.batch import Act
from slm_lab.agent.device import moved
from slm_lab.agent.distribution.exploration import (
    ExplorationPolicy,
    Generators,
    exploration_policy,
)
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.net.noise import WeightNoise
from slm_lab.agent.net.policy_value import ActingNetwork, Output
from slm_lab.agent.recurrent_state import RecurrentState
from slm_lab.core.schedule import Schedule
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, BoolArray, FloatArray
from slm_lab.spec.schema.algorithm import EXPLORING, AlgorithmSpec


@final
@dataclass(frozen=True)
class ScheduledExploration:
    """An exploration policy, with the schedule of its exploration variable."""

    policy: ExplorationPolicy
    exploration: Schedule | None

    @classmethod
    def build(
        cls,
        spec: AlgorithmSpec,
        family: DistributionFamily,
        action_space: gymnasium.Space[Any],
        has_mask: bool,
    ) -> "ScheduledExploration":
        """The exploration that `action_policy` and `explore_var_spec` describe, among
        allowed actions if observations have a mask. Raises LabError where it does not
        fit the action space."""
        policy = exploration_policy(spec.action_policy, family, action_space, has_mask)
        if spec.action_policy not in EXPLORING or spec.explore_var_spec is None:
            return cls(policy, None)
        return cls(policy, spec.explore_var_spec.build())

    def explore_var(self, frame: int) -> float | None:
        """ε or τ at the trial's clock `frame`; None if the policy has neither."""
        if self.exploration is None:
            return None
        return self.exploration.at(frame)

    def draw(
        self, params: FloatArray, explore_var: float | None, generators: Generators
    ) -> tuple[Array, FloatArray]:
        """Actions for the network's outputs (B, param_dim), and their log-probabilities
        (B,)."""
        return self.policy(params, explore_var or 0.0, generators)


class PolicyActor(SavedFields, Actor):
    """Samples from the action policy; log π and V are from the same forward pass. With
    a `warmup` it acts by the warm-up until its weights have seen a first training
    event. Noisy layers get new noise in every step, each environment its own. For
    greedy actions they compute with their mean weights."""

    saved: ClassVar = {
        "generators": "_generators",
        "version": "version",
        "recurrent_state": "_recurrent",
    }

    def __init__(
        self,
        network: ActingNetwork,
        family: DistributionFamily,
        action_policy: ScheduledExploration,
        generators: Generators,
        recurrent: RecurrentState | None = None,
        warmup: ExplorationPolicy | None = None,
    ) -> None:
        self.network = network
        self.module = network.module
        self._family = self.family = family
        self._action_policy = action_policy
        self._generators = generators
        self._recurrent = recurrent
        self.is_recurrent = recurrent is not None
        self._warmup = warmup
        noise = WeightNoise(network.module)
        self._noise = noise if noise else None
        self.version = 0
        self.explore_var = action_policy.explore_var(0)

    @override
    def act(self, obs: Array, frame: int) -> Act:
        self.explore_var = self._action_policy.explore_var(frame)
        params, value, state = self._outputs(self.memory_obs(obs))
        if self._warmup is not None and self.version == 0:
            action, log_prob = self._warmup(params, 0.0, self._generators)
        else:
            action, log_prob = self._action_policy.draw(
                params, self.explore_var, self._generators
            )
        act = Act(action, log_prob, value, self.version)
        if self._recurrent is not None and state is not None:
            act = act._replace(state_around=self._recurrent.advance(state))
        return act

    def _outputs(self, obs: Array) -> Output:
        """The network's outputs, by new noise if it has noisy layers."""
        if self._noise is None:
            return self.network.act(obs)
        noise = self._noise.draw(len(obs), self._generators.tensor)
        with self._noise.applied(moved(noise, self.network.device)):
            return self.network.act(obs)

    @torch.inference_mode()
    @override
    def act_greedily(self, obs: Array) -> Array:
        params, _, state = self.network.act(self.memory_obs(obs))
        if self._recurrent is not None and state is not None:
            self._recurrent.advance(state)
        return self._family(torch.from_numpy(params)).mode().numpy()

    @override
    def memory_obs(self, obs: Array) -> Array:
        if self._recurrent is None:
            return obs
        return self._recurrent.packed_obs(obs)

    @override
    def begin(self, num_envs: int) -> None:
        if self._recurrent is not None:
            self._recurrent = RecurrentState(num_envs, self._recurrent.size)

    @override
    def end_episodes(self, ended: BoolArray) -> None:
        if self._recurrent is not None:
            self._recurrent.reset(ended)
