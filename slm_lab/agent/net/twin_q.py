"""Two action-value functions, of which the smaller is bootstrapped from (arXiv:1802.09477)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn

from slm_lab.agent.net.policy_value import StepReport
from slm_lab.agent.net.target import TargetNetwork
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.optimizer import Optimizer


@final
class TwinQ:
    """Q_1 and Q_2 in one flat vector with one optimizer, and targets that follow where there are.

    For continuous actions each takes observation and action side by side and puts out one value;
    for n discrete actions it takes the observation and puts out the value of each.
    """

    def __init__(
        self,
        nets: nn.ModuleList,
        targets: nn.ModuleList | None,
        discrete: bool,
        transform: ValueTransform,
        optimizer: Optimizer,
        target_network: TargetNetwork | None,
    ) -> None:
        self._nets = nets
        self._discrete = discrete
        self._targets = targets
        self.optimizer = optimizer
        self.transform = transform
        self.target_network = target_network
        self.device = optimizer.flat.vector.device

    def chosen(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """What both nets put out for the actions that were taken, (B,) each."""
        first, second = (self._of(net, obs, action) for net in self._nets)
        return first, second

    def chosen_and_next(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, next_action: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """`chosen`, and min(Q_1, Q_2) of the next states without a gradient, from one joint batch.

        So that batch normalisation sees both at once: section 3.2 of arXiv:1902.05605.
        """
        both = torch.cat([obs, next_obs])
        actions = None if next_action is None else torch.cat([action, next_action])
        now: list[Tensor] = []
        following: list[Tensor] = []
        for net in self._nets:
            q, next_q = _value(net, both, actions).chunk(2)
            now.append(_taken(q, action) if self._discrete else q)
            following.append(next_q.detach())
        return (now[0], now[1]), self.transform.decode(torch.min(*following))

    def for_actor(self, obs: Tensor, action: Tensor | None) -> Tensor:
        """What the actor maximises: min(Q_1, Q_2) (B,) of continuous actions (B, A), the mean
        (Q_1 + Q_2) / 2 (B, n) of all discrete ones with None.

        Of an action that is seldom taken the critics know little, and the smaller is low. A policy
        over discrete actions that goes by it gives such actions up before they have been tried.
        """
        first, second = (_value(net, obs, action) for net in self._nets)
        decode = self.transform.decode
        if self._discrete:
            return (decode(first) + decode(second)) / 2
        return decode(torch.min(first, second))

    def target(self, obs: Tensor, action: Tensor | None) -> Tensor:
        """min(Q_1, Q_2) of the target networks, (B,) or (B, n)."""
        assert self._targets is not None
        first, second = (_value(net, obs, action) for net in self._targets)
        return self.transform.decode(torch.min(first, second))

    def _of(self, net: nn.Module, obs: Tensor, action: Tensor) -> Tensor:
        if self._discrete:
            return _taken(_value(net, obs, None), action)
        return _value(net, obs, action)

    def step(self, loss: Tensor) -> StepReport:
        """One gradient step; the targets may follow."""
        report = StepReport(*self.optimizer.step(loss))
        if self.target_network is not None:
            self.target_network.after_step()
        return report

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within, gradients flow through to the actions and stop there: weights need none."""
        views = self.optimizer.flat.views
        for view in views:
            view.requires_grad_(False)
        try:
            yield
        finally:
            for view in views:
                view.requires_grad_(True)

    def train(self, mode: bool) -> None:
        """Sets the mode of the online networks; targets stay in the other."""
        for net in self._nets:
            net.train(mode)


def _value(net: nn.Module, obs: Tensor, action: Tensor | None) -> Tensor:
    if action is None:
        q: Tensor = net.forward(obs)[0]
        return q
    value: Tensor = net.forward(torch.cat([obs, action], -1))[0]
    return value.squeeze(-1)


def _taken(q: Tensor, action: Tensor) -> Tensor:
    """The values (B,) of actions (B,) among all, (B, n)."""
    return q.gather(-1, action.unsqueeze(-1)).squeeze(-1)
