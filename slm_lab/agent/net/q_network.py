"""Action-value functions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Literal, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from slm_lab.agent.net.action_mask import ActionMask
from slm_lab.agent.net.layers import Linear
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.noise import DropoutMasks, WeightNoise
from slm_lab.agent.net.policy_value import STATES_AT_ONCE, ActingNetwork
from slm_lab.agent.net.return_distribution import ReturnHead, ReturnNet
from slm_lab.agent.net.target_network import TargetNetwork
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.optimizer import Loss, Optimizer, StepReport
from slm_lab.agent.recurrent_state import RecurrentLayout


@final
class QNetwork(ActingNetwork):
    """Q(s, ·) of n discrete actions, with its target network. Q of an action that is
    not allowed is very low, so that no maximum is of one."""

    def __init__(
        self,
        net: nn.Module,
        target: nn.Module,
        optimizer: Optimizer,
        target_network: TargetNetwork,
        recurrent: RecurrentLayout | None,
        mask: ActionMask | None = None,
    ) -> None:
        super().__init__([net], {"q": optimizer}, recurrent, mask)
        self.target = target
        self.target_network = target_network
        self.noise = WeightNoise(net)
        self.target_noise = WeightNoise(target)

    def q(self, obs: Tensor) -> Tensor:
        """Q of every action, (B, n)."""
        return self.policy(obs)

    def greatest_q(self, obs: Tensor) -> Tensor:
        """max_a Q(s, a) of any number of states, (B,)."""
        parts = torch.split(obs, STATES_AT_ONCE)
        return torch.cat([self.q(part).amax(-1) for part in parts])

    def target_q(self, obs: Tensor) -> Tensor:
        """Target Q of every action, (B, n)."""
        return self.masked(self.target.forward(obs)[0], obs)

    def distributions(self, obs: Tensor, levels: Tensor | None) -> Tensor:
        """The distribution of the return of every action, (B, n, K); for `levels`
        (B, K) the quantiles there."""
        assert isinstance(self.module, ReturnNet)
        return self.module.distributions(obs, levels)

    def target_distributions(self, obs: Tensor, levels: Tensor | None) -> Tensor:
        """The target's `distributions`."""
        assert isinstance(self.target, ReturnNet)
        return self.target.distributions(obs, levels)

    def step(self, loss: Loss) -> StepReport:
        """One gradient step; the target network may follow."""
        report = self.minimise(loss)
        self.target_network.after_step()
        return report


Climbed: TypeAlias = Literal["smallest", "mean", "first"]
"""Which of the critics' values of continuous actions an actor maximises."""


@final
@dataclass(eq=False)
class Critics:
    """Q_1, …, Q_n in one flat vector with one optimizer, with target networks or
    without. Targets bootstrap from the smallest of them (n = 2: arXiv:1802.09477), or
    from the smallest of `subset_size` random ones (arXiv:2101.05982). For continuous
    actions each takes observation and action. It puts out one value, or the
    distribution of the return, whose mean is the value. For discrete actions it takes
    the observation and puts out the value of each."""

    nets: nn.ModuleList
    targets: nn.ModuleList | None
    discrete: bool
    joins_features: bool
    """Whether an action is an argument of its own, which joins the features of a net.
    If not, it stands beside the observation, which is then a vector."""
    transform: ValueTransform
    optimizer: Optimizer
    target_network: TargetNetwork | None
    climbed: Climbed = "smallest"
    subset_size: int | None = None

    def __post_init__(self) -> None:
        self.device = self.optimizer.flat.vector.device
        targets = self.targets or nn.ModuleList()
        self.masks = DropoutMasks(self.nets)
        self.target_masks = DropoutMasks(targets)
        self._all_compute = any(True for _ in targets.buffers())
        """Whether every target network computes, whatever the subset: a forward may
        change its buffers."""

    @property
    def target_networks(self) -> dict[str, TargetNetwork]:
        """The target network by name, if there is one."""
        network = self.target_network
        if network is None:
            return {}
        return {"target_network": network}

    def draw_subset(self, generator: torch.Generator) -> Tensor | None:
        """The numbers of `subset_size` critics, all different, on the CPU; None if all
        critics count."""
        if self.subset_size is None or self.subset_size == len(self.nets):
            return None
        return torch.randperm(len(self.nets), generator=generator)[: self.subset_size]

    def draw_masks(self, size: int, generator: torch.Generator) -> Tensor | None:
        """New masks of dropout, on the CPU, for a pass of `size` samples through all
        nets, or through all targets. None without dropout."""
        if not self.masks:
            return None
        return self.masks.draw(size, generator)

    def q_values(self, obs: Tensor, action: Tensor) -> list[Tensor]:
        """The outputs of all nets for the actions that were taken, (B,) each."""
        if self.discrete:
            return [value_of(net.forward(obs)[0], action) for net in self.nets]
        return [self._value(net, obs, action) for net in self.nets]

    def q_and_next_value(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, next_action: Tensor | None
    ) -> tuple[list[Tensor], Tensor]:
        """`q_values`, and the smallest Q of the next states without a gradient, in one
        batch. So that batch normalisation sees both at once: section 3.2 of
        arXiv:1902.05605."""
        both = torch.cat([obs, next_obs])
        actions = None
        if next_action is not None:
            actions = torch.cat([action, next_action])
        now: list[Tensor] = []
        following: list[Tensor] = []
        for net in self.nets:
            q, next_q = self._value(net, both, actions).chunk(2)
            now.append(value_of(q, action) if self.discrete else q)
            following.append(next_q.detach())
        return now, self.transform.decode(least(following))

    def actor_value(self, obs: Tensor, action: Tensor | None) -> Tensor:
        """The value that an actor maximises. Of continuous actions (B, A) it is the one
        that `climbed` names, (B,). For `action` None it is the mean of all for every
        discrete action, (B, n). The critics know little of an action that is seldom
        taken, and the smallest value is low. A policy over discrete actions that
        maximises it gives such actions up before they have been tried."""
        decode = self.transform.decode
        if self.climbed == "first":
            return decode(self._value(self.nets[0], obs, action))
        values = [self._value(net, obs, action) for net in self.nets]
        if self.discrete or self.climbed == "mean":
            return reduce(torch.add, map(decode, values)) / len(values)
        return decode(least(values))

    def target(
        self, obs: Tensor, action: Tensor | None, subset: Tensor | None = None
    ) -> Tensor:
        """The smallest Q of the target networks, or of those whose numbers (M,) are in
        `subset`: (B,) or (B, n)."""
        assert self.targets is not None
        if subset is not None and subset.is_cpu and not self._all_compute:
            drawn = [self.targets[number] for number in subset.tolist()]
            values = [self._value(net, obs, action) for net in drawn]
            return self.transform.decode(least(values))
        values = [self._value(net, obs, action) for net in self.targets]
        if subset is None:
            return self.transform.decode(least(values))
        # a recorded step draws other numbers each time: so all networks compute
        chosen = torch.stack(values).index_select(0, subset)
        return self.transform.decode(chosen.amin(0))

    def distributions(self, obs: Tensor, action: Tensor) -> list[Tensor]:
        """The distributions of the return that all nets predict for continuous actions,
        (B, K) each."""
        return [self._distribution(net, obs, action) for net in self.nets]

    def target_distributions(self, obs: Tensor, action: Tensor) -> list[Tensor]:
        """The `distributions` of the target networks."""
        assert self.targets is not None
        return [self._distribution(net, obs, action) for net in self.targets]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Inside this context gradients flow through to the actions, and the weights
        need none."""
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

    def _value(self, net: nn.Module, obs: Tensor, action: Tensor | None) -> Tensor:
        if action is None:
            return net.forward(obs)[0]
        value: Tensor = net.forward(*self._inputs(obs, action))[0]
        return value.squeeze(-1)

    def _distribution(self, net: nn.Module, obs: Tensor, action: Tensor) -> Tensor:
        assert isinstance(net, ReturnHead)
        return net.action_outputs(*self._inputs(obs, action)).squeeze(-2)

    def _inputs(self, obs: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        """What a network is called with."""
        if self.joins_features:
            return obs, action
        return (torch.cat([obs, action], -1),)


def least(values: Sequence[Tensor]) -> Tensor:
    """The smallest of the critics' values, element by element."""
    return reduce(torch.min, values)


def value_of(q: Tensor, action: Tensor) -> Tensor:
    """The values (B,) of actions (B,) among the values of all, (B, n)."""
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
            module.compute_weights()
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
