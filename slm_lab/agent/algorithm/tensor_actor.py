"""The actor whose observations and actions stay on the device of its network."""

from typing import Any, ClassVar, cast, final

import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.batch import Act
from slm_lab.agent.device import device_generator
from slm_lab.agent.distribution.exploration import Generators
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.net.policy_value import ActingNetwork
from slm_lab.core.state import SavedFields
from slm_lab.core.types import StateDict


@final
class TensorActor(SavedFields, Actor):
    """Samples from the policy by a generator on the device. The host waits for nothing.
    Its state is in the form of a `PolicyActor`'s. It keeps the generators of that state
    for a resume by a `PolicyActor`."""

    saved: ClassVar = {"generators": "_host", "version": "version"}

    def __init__(
        self, network: ActingNetwork, family: DistributionFamily, seed: int
    ) -> None:
        self.module = network.module
        self.family = family
        self.version = 0
        self.explore_var = None
        self._network = network
        self._family = family
        self._host = Generators(seed)
        self._generator = device_generator(network.device, seed)

    @torch.inference_mode()
    @override
    def act(self, obs: Any, frame: int) -> Act:
        params, value = self._network.outputs(obs)
        action, log_prob = self._family(params).sample_with_log_prob(self._generator)
        if value is None:
            value = torch.full_like(log_prob, torch.nan)
        return Act(
            action=cast(Any, action),
            log_prob=cast(Any, log_prob),
            value=cast(Any, value),
            version=self.version,
        )

    @torch.inference_mode()
    @override
    def act_greedily(self, obs: Any) -> Any:
        params: Tensor = self._network.policy(obs)
        return self._family(params).mode()

    @override
    def state_dict(self) -> StateDict:
        return {
            **super().state_dict(),
            "recurrent_state": None,
            "device": self._generator.device.type,
            "generator": self._generator.get_state(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        if state.get("device") == self._generator.device.type:
            self._generator.set_state(state["generator"])
