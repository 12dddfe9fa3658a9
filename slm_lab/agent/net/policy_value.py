"""A policy, with a value function in the same network, in a second one, or without."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from typing import NamedTuple, Self, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.batch import Rollout
from slm_lab.agent.device import host_arrays, moved
from slm_lab.agent.net.action_mask import ActionMask
from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.optimizer import Loss, Optimizer, StepReport, TrainState
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.core.types import Array, FloatArray

STATES_AT_ONCE = 1024
"""States whose values are computed in one batch."""


class Output(NamedTuple):
    """The network outputs that an actor uses."""

    params: FloatArray
    """(N, param_dim) of the distribution of actions"""
    value: FloatArray
    """(N,) V(s) in units of return; NaN without a critic, or if it is computed later"""
    state: FloatArray | None = None
    """(N, H) the recurrent state after the step"""


HostForward: TypeAlias = Callable[[Array], tuple[FloatArray, ...]]
"""Maps observations (N, *obs_shape) to a network's outputs, both on the host, without a
gradient. A recurrent network adds its state after the step, (N, H)."""


@lru_cache(4)
def _missing_values(num_envs: int) -> FloatArray:
    value = np.full(num_envs, np.nan, np.float32)
    value.setflags(write=False)  # all acts share it
    return value


class ActingNetwork:
    """Networks with their optimizers, as actors and learners see them. The first output
    of the first network has the parameters of the distribution of actions. A network
    whose output is something else reduces it to them in `act` and `policy`."""

    def __init__(
        self,
        nets: Sequence[nn.Module],
        optimizers: Mapping[str, Optimizer],
        recurrent: RecurrentLayout | None,
        mask: ActionMask | None = None,
    ) -> None:
        self.nets = nets
        self.module = nets[0]
        self.mask = mask
        """The mask of actions in observations; None without one."""
        self._optimizers = tuple(optimizers.values())
        self.train_state = TrainState(optimizers)
        self.recurrent = recurrent
        self.device = self._optimizers[0].flat.vector.device
        self.host_forwards = [host_forward(net, self.device) for net in nets]
        """The function by which each net computes outputs for acting."""

    def act(self, obs: Array) -> Output:
        """The outputs for observations, or for packed rows if it is recurrent."""
        params, *state = self.host_forwards[0](obs)
        params = self._masked_arrays(params, obs)
        return Output(params, _missing_values(len(params)), *state)

    def outputs(self, obs: Tensor) -> tuple[Tensor, Tensor | None]:
        """`act` for observations on the network's device, without a gradient. Returns
        the parameters (N, param_dim) and V(s) (N,). V is None without a critic, or if
        it is computed later."""
        return self.policy(obs), None

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """Distribution parameters (B, param_dim), and raw values (B,) of a critic."""
        return (self.policy(obs),)

    def policy(self, obs: Tensor) -> Tensor:
        """Distribution parameters (B, param_dim)."""
        return self.masked(self.module.forward(obs)[0], obs)

    def masked(self, params: Tensor, obs: Tensor) -> Tensor:
        """Parameters, or Q-values, (B, n), without the actions that `obs` (B, …) does
        not allow."""
        if self.mask is None:
            return params
        return self.mask(params, obs)

    def _masked_arrays(self, params: FloatArray, obs: Array) -> FloatArray:
        if self.mask is None:
            return params
        return self.mask.mask_arrays(params, obs)

    def losses(self, *terms: Tensor) -> tuple[Tensor, ...]:
        """The loss of each optimizer. One net has the sum of the terms of actor and
        critic, two nets have one term each."""
        if len(self.nets) == 1:
            return (reduce(torch.add, terms),)
        return terms

    def minimise(self, *losses: Loss, skip: Tensor | None = None) -> StepReport:
        """One gradient step of each optimizer on its loss; none if one of the losses is
        not finite. On a GPU, none if the scalar `skip` is true."""
        pairs = list(zip(self._optimizers, losses, strict=True))
        reports = [optimizer.backward(loss) for optimizer, loss in pairs]
        for optimizer in self._optimizers:
            optimizer.apply(skip)
        if len(reports) == 1:
            return reports[0]
        actor, critic = reports
        norm = (actor.grad_norm**2 + critic.grad_norm**2) ** 0.5
        return StepReport(actor.loss + critic.loss, norm)

    def train(self, mode: bool) -> None:
        """Whether normalisation layers use and update batch statistics."""
        for net in self.nets:
            net.train(mode)


@final
class PolicyHead(nn.Module):
    """A network's policy output, with an optional learned scale: ln σ of a normal
    distribution. The scale does not depend on the observation."""

    def __init__(self, net: nn.Module, scale: Tensor | None) -> None:
        super().__init__()
        self.net = net
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
        return self._with_scale(*self.net(obs))

    def step(self, rows: Tensor) -> tuple[Tensor, ...]:
        """`RecurrentNet.step` of a recurrent net, with the scale."""
        assert isinstance(self.net, RecurrentNet)
        return self._with_scale(*self.net.step(rows))

    def advance(
        self, obs: Tensor | Mapping[str, Tensor], state: Tensor
    ) -> tuple[Tensor, ...]:
        """`RecurrentNet.advance` of a recurrent net, with the scale."""
        assert isinstance(self.net, RecurrentNet)
        return self._with_scale(*self.net.advance(obs, state))

    def _with_scale(self, params: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        if self.scale is not None:
            params = torch.cat([params, self.scale.expand(*params.shape[:-1], -1)], -1)
        return (params, *rest)


def host_forward(net: nn.Module, device: torch.device) -> HostForward:
    """The way of torch, for any net on any device."""
    compute: Callable[[Tensor], tuple[Tensor, ...]] = net.forward
    inner = net
    if isinstance(net, PolicyHead):
        inner = net.net
    if isinstance(net, PolicyHead | RecurrentNet) and isinstance(inner, RecurrentNet):
        compute = net.step

    def forward(obs: Array) -> tuple[FloatArray, ...]:
        with torch.inference_mode():
            return host_arrays(compute(moved(torch.from_numpy(obs), device)))

    return forward


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
        mask: ActionMask | None = None,
    ) -> None:
        super().__init__(nets, optimizers, recurrent, mask)
        self._is_shared = len(nets) == 1
        self._values_later = False
        self.transform = transform

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        if self._is_shared:
            params, value = self.module.forward(obs)
            return self.masked(params, obs), value.squeeze(-1)
        return self.policy(obs), self.raw_value(obs)

    def raw_value(self, obs: Tensor) -> Tensor:
        """Raw values (B,)."""
        value: Tensor = self.nets[-1].forward(obs)[-1]
        return value.squeeze(-1)

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        """V(s) in units of return without a gradient, (B,). Observations and values are
        on the CPU."""
        return self._value(obs).cpu()

    def _value(self, obs: Tensor) -> Tensor:
        """`value` on the network's device."""
        return self.transform.decode(self.raw_value(moved(obs, self.device)))

    def defer_values(self) -> None:
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
        params, *rest = self.host_forwards[0](obs)
        params = self._masked_arrays(params, obs)
        if self._values_later:
            return Output(params, _missing_values(len(params)))
        if self._is_shared:
            raw_value, *states = rest
        else:
            raw_value, *of_critic = self.host_forwards[1](obs)
            states = [np.hstack([*rest, *of_critic])] if rest else []
        value: FloatArray = (
            self.transform.decode(torch.from_numpy(raw_value[:, 0])).cpu().numpy()
        )
        return Output(params, value, *states)

    @override
    def outputs(self, obs: Tensor) -> tuple[Tensor, Tensor | None]:
        if self._values_later:
            return self.policy(obs), None
        params, raw_value = self.forward(obs)
        return params, self.transform.decode(raw_value)

    def step(
        self, policy_loss: Tensor, value_loss: Tensor, skip: Tensor | None = None
    ) -> StepReport:
        """`minimise` with the `losses` of both."""
        return self.minimise(*self.losses(policy_loss, value_loss), skip=skip)


@final
class PolicyOnly(ActingNetwork):
    """π(a|s) without a value function."""
