"""A policy, with a value function in the same network, in a second one, or without."""

from abc import ABC, abstractmethod
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
    """A network's policy output, with an optional learned scale: ln σ of a normal distribution.

    The scale does not depend on the observation.
    """

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


class PolicyValue(ABC):
    """π(a|s) and V(s) as an algorithm sees them, with a shared body or without.

    `raw` values are the critic's outputs; `transform.decode` converts them to returns.
    """

    def __init__(
        self,
        nets: Sequence[nn.Module],
        transform: ValueTransform,
        optimizers: Mapping[str, Optimizer],
        recurrent: RecurrentLayout | None,
    ) -> None:
        self._nets = nets
        self._optimizers = tuple(optimizers.values())
        self.module = nets[0]
        self.transform = transform
        self.train_state = TrainState(optimizers)
        self.recurrent = recurrent
        self.device = self._optimizers[0].flat.vector.device

    @abstractmethod
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution parameters (B, param_dim) and raw values (B,)."""

    @abstractmethod
    def policy(self, obs: Tensor) -> Tensor:
        """Distribution parameters (B, param_dim)."""

    @abstractmethod
    def raw_value(self, obs: Tensor) -> Tensor:
        """Raw values (B,)."""

    @abstractmethod
    def step(self, policy_loss: Tensor, value_loss: Tensor) -> StepReport:
        """One gradient step on the sum of the two losses."""

    def train(self, mode: bool) -> None:
        """Whether normalisation layers use and update batch statistics."""
        for net in self._nets:
            net.train(mode)

    @abstractmethod
    def act(self, obs: Array) -> Output:
        """The outputs for observations, or for packed rows if it is recurrent."""

    def _as_returns(self, raw_value: FloatArray) -> FloatArray:
        """(N, 1) to (N,)."""
        returns: FloatArray = self.transform.decode(torch.from_numpy(raw_value[:, 0])).numpy()
        return returns

    def value(self, obs: Tensor) -> Tensor:
        """V(s) in units of return, (B,)."""
        return self.transform.decode(self.raw_value(obs))


@final
class SharedPolicyValue(PolicyValue):
    """One body with a policy head and a value head, and one optimizer."""

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        params, value = self._nets[0].forward(obs)
        return params, value.squeeze(-1)

    @override
    def act(self, obs: Array) -> Output:
        params, raw_value, *state = act_forward(self._nets[0], obs, self.device)
        return Output(params, self._as_returns(raw_value), *state)

    @override
    def policy(self, obs: Tensor) -> Tensor:
        return self.forward(obs)[0]

    @override
    def raw_value(self, obs: Tensor) -> Tensor:
        return self.forward(obs)[1]

    @override
    def step(self, policy_loss: Tensor, value_loss: Tensor) -> StepReport:
        (optimizer,) = self._optimizers
        return optimizer.step(policy_loss + value_loss)


@final
class SeparatePolicyValue(PolicyValue):
    """Two networks, each with its own optimizer and its own gradient clipping."""

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(obs), self.raw_value(obs)

    @override
    def act(self, obs: Array) -> Output:
        params, *own = act_forward(self._nets[0], obs, self.device)
        raw_value, *of_critic = act_forward(self._nets[1], obs, self.device)
        state = np.hstack([*own, *of_critic]) if own else None
        return Output(params, self._as_returns(raw_value), state)

    @override
    def policy(self, obs: Tensor) -> Tensor:
        params: Tensor = self._nets[0].forward(obs)[0]
        return params

    @override
    def raw_value(self, obs: Tensor) -> Tensor:
        value: Tensor = self._nets[1].forward(obs)[0]
        return value.squeeze(-1)

    @override
    def step(self, policy_loss: Tensor, value_loss: Tensor) -> StepReport:
        """One step each, or none if one of the losses is not finite."""
        actor, critic = self._optimizers
        actor_loss, actor_norm = actor.backward(policy_loss)
        critic_loss, critic_norm = critic.backward(value_loss)
        actor.apply()
        critic.apply()
        return StepReport(actor_loss + critic_loss, (actor_norm**2 + critic_norm**2) ** 0.5)


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
