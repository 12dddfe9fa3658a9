"""A policy, with a value function in the same network, in a second one, or without."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, Self, final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.autodiff import Differentiable, Node, parameter
from slm_lab.agent.batch import Rollout
from slm_lab.agent.device import moved
from slm_lab.agent.net.array_mlp import ArrayNet, act_forward, forward_nodes, has_nodes
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.optimizer import Optimizer, StepReport, TrainState
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.core.types import Array, FloatArray, Shape

STATES_AT_ONCE = 1024
"""States that a critic evaluates in one batch."""


class Output(NamedTuple):
    """The network outputs that an actor uses."""

    params: FloatArray
    """(N, param_dim) of the distribution of actions"""
    value: FloatArray
    """(N,) V(s) in units of return; NaN without a critic, or if it is computed later"""
    state: FloatArray | None = None
    """(N, H) the recurrent state after the step"""


@lru_cache(4)
def _no_value(num_envs: int) -> FloatArray:
    value = np.full(num_envs, np.nan, np.float32)
    value.setflags(write=False)  # all acts share it
    return value


class ActingNetwork:
    """Networks with their optimizers, as actors and learners see them. The first output
    of the first network has the parameters of the distribution of actions."""

    def __init__(
        self,
        nets: Sequence[nn.Module],
        optimizers: Mapping[str, Optimizer],
        recurrent: RecurrentLayout | None,
    ) -> None:
        self._nets = nets
        self.module = nets[0]
        self._optimizers = tuple(optimizers.values())
        self.train_state = TrainState(optimizers)
        self.recurrent = recurrent
        self.device = self._optimizers[0].flat.vector.device
        self._uses_nodes = False

    def act(self, obs: Array) -> Output:
        """The outputs for observations, or for packed rows if it is recurrent."""
        params, *state = act_forward(self.module, obs, self.device)
        return Output(params, _no_value(len(params)), *state)

    def policy(self, obs: Tensor) -> Tensor:
        """Distribution parameters (B, param_dim)."""
        return self.module.forward(obs)[0]

    def use_nodes(self, obs_shape: Shape) -> bool:
        """Computes gradients without autograd from now on, if all nets can, and returns
        whether."""
        self._uses_nodes = all(has_nodes(net, obs_shape) for net in self._nets)
        return self._uses_nodes

    def train(self, mode: bool) -> None:
        """Whether normalisation layers use and update batch statistics."""
        for net in self._nets:
            net.train(mode)


@final
class PolicyHead(nn.Module, ArrayNet):
    """A network's policy output, with an optional learned scale: ln σ of a normal
    distribution. The scale does not depend on the observation."""

    def __init__(self, net: nn.Module, scale: Tensor | None) -> None:
        super().__init__()
        self.net = net
        # A plain attribute: looking a module up takes a microsecond.
        self._forward_array = net.forward_array if isinstance(net, ArrayNet) else None
        self.scale = None if scale is None else nn.Parameter(scale)

    @override
    def train(self, mode: bool = True) -> Self:
        """Torch's own `train` walks through all layers, which takes 10 µs."""
        self.training = mode
        self.net.train(mode)
        return self

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, ...) to distribution parameters (B, param_dim), then the network's other
        heads."""
        params, *rest = self.net(obs)
        if self.scale is not None:
            params = torch.cat([params, self.scale.expand(*params.shape[:-1], -1)], -1)
        return (params, *rest)

    @override
    def forward_array(self, obs: Array) -> tuple[FloatArray, ...] | None:
        outputs = None if self._forward_array is None else self._forward_array(obs)
        if outputs is None or self.scale is None:
            return outputs
        params, *rest = outputs
        return (self._with_scale(params, self.scale), *rest)

    @override
    def forward_nodes(self, obs: Array | Node) -> tuple[Node, ...] | None:
        outputs = (
            self.net.forward_nodes(obs) if isinstance(self.net, ArrayNet) else None
        )
        scale = self.scale
        if outputs is None or scale is None:
            return outputs
        params, *rest = outputs

        def vjp(grad: FloatArray) -> tuple[FloatArray, FloatArray]:
            of_params, of_scale = np.split(grad, [params.array.shape[-1]], -1)
            return of_params, np.add.reduce(of_scale, 0)

        both = self._with_scale(params.array, scale)
        return (Node(both, (params, parameter(scale)), vjp), *rest)

    @staticmethod
    def _with_scale(params: FloatArray, scale: Tensor) -> FloatArray:
        """(N, head_dim) and (A,) side by side, (N, head_dim + A)."""
        rows, size = params.shape
        both = np.empty((rows, size + len(scale)), np.float32)
        both[:, :size], both[:, size:] = params, scale.detach().cpu().numpy()
        return both


@final
class PolicyValue(ActingNetwork):
    """π(a|s) and V(s) as an algorithm sees them. One net has a head for each, and one
    optimizer. Of two nets each has its own optimizer and its own gradient clipping.
    `raw` values are the critic's outputs; `transform.decode` converts them to
    returns."""

    def __init__(
        self,
        nets: Sequence[nn.Module],
        transform: ValueTransform,
        optimizers: Mapping[str, Optimizer],
        recurrent: RecurrentLayout | None,
    ) -> None:
        super().__init__(nets, optimizers, recurrent)
        self._is_shared = len(nets) == 1
        self._values_later = False
        self.transform = transform

    def differentiable(self, obs: Tensor) -> tuple[Differentiable, Differentiable]:
        """`forward` for a loss that `step` minimises: nodes if the step is written
        out."""
        if not self._uses_nodes:
            return self.forward(obs)
        outputs = [forward_nodes(net, obs) for net in self._nets]
        return outputs[0][0], outputs[-1][-1].squeeze(-1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution parameters (B, param_dim) and raw values (B,)."""
        if self._is_shared:
            params, value = self.module.forward(obs)
            return params, value.squeeze(-1)
        return self.policy(obs), self.raw_value(obs)

    def raw_value(self, obs: Tensor) -> Tensor:
        """Raw values (B,)."""
        value: Tensor = self._nets[-1].forward(obs)[-1]
        return value.squeeze(-1)

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        """V(s) in units of return without a gradient, (B,). Observations and values are
        on the CPU."""
        return self._value(obs).cpu()

    def _value(self, obs: Tensor) -> Tensor:
        """`value` on the network's device."""
        if self.recurrent is not None or self.device.type != "cpu":
            return self.transform.decode(self.raw_value(moved(obs, self.device)))
        raw_value = act_forward(self._nets[-1], obs.numpy(), self.device)[-1]
        return self.transform.decode(torch.from_numpy(raw_value[:, 0]))

    def value_later(self) -> None:
        """Leaves values to `valued`, if the critic is a separate net without recurrent
        state."""
        self._values_later = not self._is_shared and self.recurrent is None

    @torch.no_grad()
    def valued(self, rollout: Rollout) -> Rollout:
        """The rollout with V of all states at once: much faster than of a few in every
        step."""
        if not self._values_later or not rollout.value.isnan().any():
            return rollout
        parts = torch.split(rollout.obs.flatten(0, 1), STATES_AT_ONCE)
        # a GPU is waited for once
        value = torch.cat([self._value(part) for part in parts]).cpu()
        return replace(rollout, value=value.view_as(rollout.reward))

    @override
    def act(self, obs: Array) -> Output:
        params, *rest = act_forward(self.module, obs, self.device)
        if self._values_later:
            return Output(params, _no_value(len(params)))
        if self._is_shared:
            raw_value, *states = rest
        else:
            raw_value, *of_critic = act_forward(self._nets[1], obs, self.device)
            states = [np.hstack([*rest, *of_critic])] if rest else []
        value: FloatArray = (
            self.transform.decode(torch.from_numpy(raw_value[:, 0])).cpu().numpy()
        )
        return Output(params, value, *states)

    def step(
        self,
        policy_loss: Differentiable,
        value_loss: Differentiable,
        skip: Tensor | None = None,
    ) -> StepReport:
        """One gradient step on the sum of the two losses. Two nets take one each, or
        none if one of the losses is not finite. On a GPU, none if the scalar `skip` is
        true."""
        if self._is_shared:
            return self._optimizers[0].step(policy_loss + value_loss, skip)
        actor, critic = self._optimizers
        actor_loss, actor_norm = actor.backward(policy_loss)
        critic_loss, critic_norm = critic.backward(value_loss)
        actor.apply(skip)
        critic.apply(skip)
        return StepReport(
            actor_loss + critic_loss, (actor_norm**2 + critic_norm**2) ** 0.5
        )


@final
class PolicyOnly(ActingNetwork):
    """π(a|s) without a value function."""

    def differentiable(self, obs: Tensor) -> Differentiable:
        """Distribution parameters (B, param_dim) for a loss that `step` minimises: a
        node if the step is written out."""
        return (
            forward_nodes(self.module, obs)[0] if self._uses_nodes else self.policy(obs)
        )

    def step(self, policy_loss: Differentiable) -> StepReport:
        """One gradient step."""
        return self._optimizers[0].step(policy_loss)
