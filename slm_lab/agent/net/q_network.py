"""Action-value functions and their target networks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from slm_lab.agent.autodiff import Differentiable, Node, beside, minimum
from slm_lab.agent.net.array_mlp import forward_nodes
from slm_lab.agent.net.layers import Linear
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.policy_value import ActingNetwork
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import Optimizer, StepReport
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.core.types import FloatArray, StateDict


@final
class TargetNetwork:
    """A second network that follows the online one, so that targets do not move with
    every step. At the start they are equal. "replace" copies the online network,
    "polyak" moves the target by τ: target ← τ online + (1 − τ) target. Either happens
    after the training event in which the Session's frames cross a multiple of
    `update_frequency`; polyak with an `update_frequency` of 1 after every gradient
    step."""

    def __init__(
        self,
        online: FlatParameters,
        target: FlatParameters,
        update_type: Literal["replace", "polyak"] = "replace",
        update_frequency: int = 1,
        tau: float = 1.0,
    ) -> None:
        self._online = online
        self.target = target
        self._frequency = update_frequency
        self._tau = tau if update_type == "polyak" else 1.0
        self._every_step = update_type == "polyak" and update_frequency == 1
        self._last_frame = 0
        self.copy_online()

    def copy_online(self) -> None:
        """Makes the target equal to the online network."""
        self.target.copy_(self._online)

    def after_step(self) -> None:
        """Updates the target if it follows every gradient step."""
        if self._every_step:
            self._update_target()

    def update_after_event(self, frame: int) -> None:
        """Updates the target if it is due after a training event at the Session's
        frame."""
        crosses = frame // self._frequency > self._last_frame // self._frequency
        self._last_frame = frame
        if crosses and not self._every_step:
            self._update_target()

    @torch.no_grad()
    def _update_target(self) -> None:
        if self._tau == 1.0:
            self.target.copy_(self._online)
        else:
            self.target.vector.lerp_(self._online.vector, self._tau)
            self.target.statistics.lerp_(self._online.statistics, self._tau)

    def state_dict(self) -> StateDict:
        """The target's values, and the frame of the last event."""
        return {"target": self.target.state_dict(), "last_frame": self._last_frame}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores both in place."""
        self.target.load_state_dict(state["target"])
        self._last_frame = int(state["last_frame"])


@final
class QNetwork(ActingNetwork):
    """Q(s, ·) of n discrete actions, with its target network."""

    def __init__(
        self,
        net: nn.Module,
        target: nn.Module,
        optimizer: Optimizer,
        target_network: TargetNetwork,
        recurrent: RecurrentLayout | None,
    ) -> None:
        super().__init__([net], {"q": optimizer}, recurrent)
        self.target, self.target_network = target, target_network

    def q_of(self, obs: Tensor, action: Tensor) -> Differentiable:
        """Q(s, a) of one action each, (B,), for a loss that `step` minimises: a node if
        the step is written out."""
        if not self._uses_nodes:
            return _gathered(self.q(obs), action)
        (q,) = forward_nodes(self.module, obs)
        taken = (np.arange(len(action)), action.numpy())

        def vjp(grad: FloatArray) -> tuple[FloatArray]:
            of_q = np.zeros_like(q.array)
            of_q[taken] = grad
            return (of_q,)

        return Node(q.array[taken], (q,), vjp)

    def q(self, obs: Tensor) -> Tensor:
        """Q of every action, (B, n)."""
        return self.policy(obs)

    def target_q(self, obs: Tensor) -> Tensor:
        """Target Q of every action, (B, n)."""
        return self.target.forward(obs)[0]

    def step(self, loss: Differentiable) -> StepReport:
        """One gradient step; the target network may follow."""
        (optimizer,) = self._optimizers
        report = optimizer.step(loss)
        self.target_network.after_step()
        return report


@final
@dataclass(eq=False)
class TwinQ:
    """Q_1 and Q_2 in one flat vector with one optimizer, with target networks or
    without. The smaller of the two is bootstrapped from (arXiv:1802.09477). For
    continuous actions each takes observation and action side by side and puts out one
    value. For n discrete actions it takes the observation and puts out the value of
    each."""

    nets: nn.ModuleList
    targets: nn.ModuleList | None
    discrete: bool
    transform: ValueTransform
    optimizer: Optimizer
    target_network: TargetNetwork | None
    uses_nodes: bool = False
    """Whether `q_values` are nodes, differentiated without autograd."""

    def __post_init__(self) -> None:
        self.device = self.optimizer.flat.vector.device

    def q_values(
        self, obs: Tensor, action: Tensor
    ) -> tuple[Differentiable, Differentiable]:
        """Both nets' outputs for the actions that were taken, (B,) each, for a loss
        that `step` minimises: nodes if the step is written out."""
        if self.uses_nodes:
            return self._value_nodes(torch.cat([obs, action], -1))
        given = None if self.discrete else action
        values = (_value(net, obs, given) for net in self.nets)
        first, second = (_gathered(q, action) if self.discrete else q for q in values)
        return first, second

    def q_and_next_value(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, next_action: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """`q_values`, and min(Q_1, Q_2) of the next states without a gradient, in one
        batch. So that batch normalisation sees both at once: section 3.2 of
        arXiv:1902.05605."""
        both = torch.cat([obs, next_obs])
        actions = None if next_action is None else torch.cat([action, next_action])
        now: list[Tensor] = []
        following: list[Tensor] = []
        for net in self.nets:
            q, next_q = _value(net, both, actions).chunk(2)
            now.append(_gathered(q, action) if self.discrete else q)
            following.append(next_q.detach())
        return (now[0], now[1]), self.transform.decode(torch.min(*following))

    def actor_value(self, obs: Tensor, action: Differentiable | None) -> Differentiable:
        """The value that the actor maximises. It is min(Q_1, Q_2) (B,) of continuous
        actions (B, A), or for `action` None the mean (Q_1 + Q_2) / 2 (B, n) of all
        discrete ones. The critics know little of an action that is seldom taken, and
        the smaller value is low. A policy over discrete actions that maximises it gives
        such actions up before they have been tried."""
        if isinstance(action, Node):
            return minimum(*self._value_nodes(beside(obs.numpy(), action)))
        first, second = (_value(net, obs, action) for net in self.nets)
        decode = self.transform.decode
        if self.discrete:
            return (decode(first) + decode(second)) / 2
        return decode(torch.min(first, second))

    def target(self, obs: Tensor, action: Tensor | None) -> Tensor:
        """min(Q_1, Q_2) of the target networks, (B,) or (B, n)."""
        assert self.targets is not None
        first, second = (_value(net, obs, action) for net in self.targets)
        return self.transform.decode(torch.min(first, second))

    def _value_nodes(self, both: Differentiable) -> tuple[Node, Node]:
        first, second = (forward_nodes(net, both)[0].squeeze(-1) for net in self.nets)
        return first, second

    def step(self, loss: Differentiable) -> StepReport:
        """One gradient step; the targets may follow."""
        report = self.optimizer.step(loss)
        if self.target_network is not None:
            self.target_network.after_step()
        return report

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within, gradients flow through to the actions; the weights need none."""
        views = self.optimizer.flat.views
        for view in views:
            view.requires_grad_(False)
        try:
            yield
        finally:
            for view in views:
                view.requires_grad_(True)

    def train(self, mode: bool) -> None:
        """Sets the mode of the online networks; targets stay in evaluation mode."""
        for net in self.nets:
            net.train(mode)


def _value(net: nn.Module, obs: Tensor, action: Tensor | None) -> Tensor:
    if action is None:
        return net.forward(obs)[0]
    value: Tensor = net.forward(torch.cat([obs, action], -1))[0]
    return value.squeeze(-1)


def _gathered(q: Tensor, action: Tensor) -> Tensor:
    """The values (B,) of actions (B,) among all, (B, n)."""
    return q.gather(-1, action.unsqueeze(-1)).squeeze(-1)


POWER_ITERATIONS = 15
"""Steps that find the singular vectors at the start; later forwards take one each."""


def normalise_spectrum(net: nn.Module, generator: torch.Generator) -> None:
    """Divides the weight of every linear layer by an estimate of its largest singular
    value. The weight of a convolution counts as a matrix (out, in × kernel): section 3
    of Miyato et al., arXiv:1802.05957. The singular vectors are buffers of the network;
    `generator` draws their start."""
    for module in net.modules():
        if isinstance(module, MLPNet):
            module.use_layers()
    linear = [module for module in net.modules() if isinstance(module, Linear)]
    # torch draws them first, from the global generator
    with torch.random.fork_rng(devices=[]):
        for layer in linear:
            parametrizations.spectral_norm(layer)
    for layer in linear:
        lists = layer.parametrizations
        assert isinstance(lists, nn.ModuleDict)
        for vector in lists.buffers():
            vector.normal_(generator=generator)
            vector.div_(vector.norm())
        layer.train(True)
        for _ in range(POWER_ITERATIONS):
            _ = layer.weight  # in this mode reading it takes a step
        layer.train(False)
