"""A policy, with a value function in the same network, in a second one, or without."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.fast_mlp import ArrayNet, act_forward
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.optimizer import Optimizer, StepReport, TrainState
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.core.types import Array, FloatArray


class Output(NamedTuple):
    """The network outputs that an actor uses."""

    params: FloatArray
    """(N, param_dim) of the distribution of actions"""
    value: FloatArray
    """(N,) V(s) in units of return; NaN without a critic"""
    state: FloatArray | None = None
    """(N, H) the recurrent state after the step"""


class ActingNetwork(Protocol):
    """A network as an actor sees it."""

    @property
    def recurrent(self) -> RecurrentLayout | None:
        """Its recurrent state; None without one."""

    @property
    def module(self) -> nn.Module:
        """The policy; its first output has the parameters (B, param_dim) of the distribution."""

    def act(self, obs: Array) -> Output:
        """The outputs for observations, or for packed rows if it is recurrent."""


@final
class PolicyHead(nn.Module, ArrayNet):
    """A network's policy output, with an optional learned scale: ln σ of a normal distribution. The
    scale does not depend on the observation."""

    def __init__(self, net: nn.Module, scale: Tensor | None) -> None:
        super().__init__()
        self.net = net
        self.scale = None if scale is None else nn.Parameter(scale)

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, ...) to distribution parameters (B, param_dim), then the network's other heads."""
        params, *rest = self.net(obs)
        if self.scale is not None:
            params = torch.cat([params, self.scale.expand(*params.shape[:-1], -1)], -1)
        return (params, *rest)

    @override
    def forward_array(self, obs: Array) -> tuple[FloatArray, ...] | None:
        outputs = self.net.forward_array(obs) if isinstance(self.net, ArrayNet) else None
        if outputs is None or self.scale is None:
            return outputs
        params, *rest = outputs
        scale = self.scale.detach().cpu().numpy()
        return (np.hstack([params, np.broadcast_to(scale, (len(params), len(scale)))]), *rest)


@final
class PolicyValue:
    """π(a|s) and V(s) as an algorithm sees them.

    One net has a head for each, and one optimizer. Of two nets each has its own optimizer and its
    own gradient clipping. `raw` values are the critic's outputs; `transform.decode` converts them
    to returns.
    """

    def __init__(
        self,
        nets: Sequence[nn.Module],
        transform: ValueTransform,
        optimizers: Mapping[str, Optimizer],
        recurrent: RecurrentLayout | None,
    ) -> None:
        self._nets = nets
        self._is_shared = len(nets) == 1
        self._optimizers = tuple(optimizers.values())
        self.module = nets[0]
        self.transform = transform
        self.train_state = TrainState(optimizers)
        self.recurrent = recurrent
        self.device = self._optimizers[0].flat.vector.device

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution parameters (B, param_dim) and raw values (B,)."""
        if self._is_shared:
            params, value = self.module.forward(obs)
            return params, value.squeeze(-1)
        return self.policy(obs), self.raw_value(obs)

    def policy(self, obs: Tensor) -> Tensor:
        """Distribution parameters (B, param_dim)."""
        params: Tensor = self.module.forward(obs)[0]
        return params

    def raw_value(self, obs: Tensor) -> Tensor:
        """Raw values (B,)."""
        value: Tensor = self._nets[-1].forward(obs)[-1]
        return value.squeeze(-1)

    def value(self, obs: Tensor) -> Tensor:
        """V(s) in units of return, (B,)."""
        return self.transform.decode(self.raw_value(obs))

    def act(self, obs: Array) -> Output:
        """The outputs for observations, or for packed rows if it is recurrent."""
        params, *rest = act_forward(self.module, obs, self.device)
        if self._is_shared:
            raw_value, *states = rest
        else:
            raw_value, *of_critic = act_forward(self._nets[1], obs, self.device)
            states = [np.hstack([*rest, *of_critic])] if rest else []
        value: FloatArray = self.transform.decode(torch.from_numpy(raw_value[:, 0])).numpy()
        return Output(params, value, *states)

    def step(self, policy_loss: Tensor, value_loss: Tensor) -> StepReport:
        """One gradient step on the sum of the two losses. Two nets take one each, or none if one of
        the losses is not finite."""
        if self._is_shared:
            return self._optimizers[0].step(policy_loss + value_loss)
        actor, critic = self._optimizers
        actor_loss, actor_norm = actor.backward(policy_loss)
        critic_loss, critic_norm = critic.backward(value_loss)
        actor.apply()
        critic.apply()
        return StepReport(actor_loss + critic_loss, (actor_norm**2 + critic_norm**2) ** 0.5)

    def train(self, mode: bool) -> None:
        """Whether normalisation layers use and update batch statistics."""
        for net in self._nets:
            net.train(mode)


@final
class PolicyOnly:
    """π(a|s) without a value function."""

    def __init__(
        self, net: PolicyHead, optimizer: Optimizer, recurrent: RecurrentLayout | None
    ) -> None:
        self._net = self.module = net
        self._optimizer = optimizer
        self.recurrent = recurrent
        self.train_state = TrainState({"actor": optimizer})
        self.device = optimizer.flat.vector.device

    def policy(self, obs: Tensor) -> Tensor:
        """Distribution parameters (B, param_dim)."""
        return self._net.forward(obs)[0]

    def act(self, obs: Array) -> Output:
        """The outputs without values."""
        params, *state = act_forward(self._net, obs, self.device)
        return Output(params, np.full(len(params), np.nan, np.float32), *state)

    def step(self, policy_loss: Tensor) -> StepReport:
        """One gradient step."""
        return self._optimizer.step(policy_loss)

    def train(self, mode: bool) -> None:
        """Sets the mode of the network."""
        self._net.train(mode)
