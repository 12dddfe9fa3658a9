"""The keys of an agent's net blocks become networks with their optimizers."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from slm_lab.agent.device import resolve_device
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.from_spec.schedule import schedule_of
from slm_lab.agent.net.action_mask import action_mask
from slm_lab.agent.net.layers import Head, Heads
from slm_lab.agent.net.policy_value import PolicyHead, PolicyOnly, PolicyValue
from slm_lab.agent.net.q_network import Critics, QNetwork, normalise_spectrum
from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.agent.net.return_distribution import (
    CategoricalReturn,
    ImplicitReturnNet,
    QuantileReturn,
    ReturnDistribution,
    ReturnHead,
    SplitNet,
)
from slm_lab.agent.net.target_network import TargetNetwork
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import LearningRate, Optimizer, build_learning_rate
from slm_lab.agent.optim.rule import build_rule
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.core.errors import LabError
from slm_lab.core.observation import ObservationLayout
from slm_lab.spec.checks.observations import joins_features
from slm_lab.spec.schema.agent import AgentSpec, net_for_role
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.replay_actor_critic import ReplayActorCriticSpec

logger = logging.getLogger(__name__)


def build_policy_value(
    spec: AgentSpec,
    family: DistributionFamily,
    layout: ObservationLayout,
    transform: ValueTransform,
    generator: torch.Generator,
) -> PolicyValue:
    """Actor and critic as the net spec asks: one body or two, initialised from
    `generator`. They are in evaluation mode; a learner switches it while it learns."""
    actor_spec = net_for_role(spec, "actor")
    critic_spec = net_for_role(spec, "critic")
    device = resolve_device(actor_spec.gpu)
    value = Head(1, critic_spec.init_std)
    if actor_spec.shared:
        net = _build_policy(actor_spec, family, layout, generator, values=[value])
        flat = FlatParameters(nn.ModuleList([net, transform]).to(device))
        optimizers = {"actor_critic": build_optimizer(actor_spec, flat)}
        return PolicyValue(
            nets=[net],
            transform=transform,
            optimizers=optimizers,
            recurrent=recurrent_layout(net.net),
            mask=action_mask(layout),
        )
    actor = _build_policy(actor_spec, family, layout, generator)
    critic = build_net(critic_spec, layout, [value], generator).train(False)
    actor_flat = FlatParameters(actor.to(device))
    critic_flat = FlatParameters(nn.ModuleList([critic, transform]).to(device))
    optimizers = {
        "actor": build_optimizer(actor_spec, actor_flat),
        "critic": build_optimizer(critic_spec, critic_flat),
    }
    recurrent = recurrent_layout(actor.net, critic)
    return PolicyValue(
        nets=[actor, critic],
        transform=transform,
        optimizers=optimizers,
        recurrent=recurrent,
        mask=action_mask(layout),
    )


def build_policy_only(
    spec: AgentSpec,
    family: DistributionFamily,
    layout: ObservationLayout,
    generator: torch.Generator,
) -> PolicyOnly:
    """A policy without a critic, initialised from `generator`."""
    net_spec = net_for_role(spec, "actor")
    net = _build_policy(net_spec, family, layout, generator)
    flat = FlatParameters(net.to(resolve_device(net_spec.gpu)))
    return PolicyOnly(
        nets=[net],
        optimizers={"actor": build_optimizer(net_spec, flat)},
        recurrent=recurrent_layout(net.net),
        mask=action_mask(layout),
    )


def _build_policy(
    spec: NetSpec,
    family: DistributionFamily,
    layout: ObservationLayout,
    generator: torch.Generator,
    values: Heads = (),
) -> PolicyHead:
    """A net with a head for the policy and one for each value, in evaluation mode."""
    scale = _free_scale(spec, family)
    policy_dim = family.param_dim
    if scale is not None:
        policy_dim -= len(scale)
    heads = [Head(policy_dim, spec.init_std), *values]
    return PolicyHead(build_net(spec, layout, heads, generator), scale).train(False)


def build_q_network(
    spec: AgentSpec,
    num_actions: int,
    layout: ObservationLayout,
    generator: torch.Generator,
    returns: ReturnDistribution | None = None,
    num_cosines: int | None = None,
) -> QNetwork:
    """Q(s, ·) and its target, initialised from `generator` and equal; with `returns`
    networks that predict the distribution of the return. With `num_cosines` these are
    its quantiles at any levels, which they see as so many cosines."""
    net_spec = net_for_role(spec, "actor")
    device = resolve_device(net_spec.gpu)
    size = 1
    if returns is not None and num_cosines is None:
        size = returns.size
    heads = [Head(num_actions * size, net_spec.init_std, per_action=size)]

    def build() -> nn.Module:
        net = build_net(net_spec, layout, heads, generator)
        if num_cosines is not None:
            net = _implicit(
                net=net,
                spec=net_spec,
                returns=returns,
                num_cosines=num_cosines,
                generator=generator,
            )
        elif returns is not None:
            net = ReturnHead(net, returns)
        return net.to(device).train(False)

    net = build()
    twin = build()
    flat = FlatParameters(net)
    target_network = build_target_network(net_spec, flat, FlatParameters(twin))
    optimizer = build_optimizer(net_spec, flat)
    return QNetwork(
        net=net,
        target=twin,
        optimizer=optimizer,
        target_network=target_network,
        recurrent=recurrent_layout(net),
        mask=action_mask(layout),
    )


def _implicit(
    net: nn.Module,
    spec: NetSpec,
    returns: ReturnDistribution | None,
    num_cosines: int,
    generator: torch.Generator,
) -> ImplicitReturnNet:
    """The net around `net`. Raises LabError for one without two parts."""
    assert isinstance(returns, QuantileReturn)
    if not isinstance(net, SplitNet):
        raise LabError(
            f"{spec.path_of('type')} = {spec.type}: has no embedding of the observation"
        )
    return ImplicitReturnNet(net, returns, num_cosines, generator)


RETURN_DISTRIBUTIONS: Mapping[str, Callable[..., ReturnDistribution]] = {
    "categorical": CategoricalReturn,
    "quantile": QuantileReturn,
}


def build_return_distribution(spec: AlgorithmSpec) -> ReturnDistribution | None:
    """The distribution that an algorithm learns; None if it learns the mean alone."""
    if spec.returns is None:
        return None
    kind, arguments = spec.returns
    return RETURN_DISTRIBUTIONS[kind](**arguments)


def build_critics(
    agent: AgentSpec,
    algorithm: ReplayActorCriticSpec,
    layout: ObservationLayout,
    num_actions: int,
    discrete: bool,
    generator: torch.Generator,
) -> Critics:
    """The critics, and equal target networks if the algorithm has any. They predict the
    distribution of the return if the algorithm names one. `num_actions` is the number
    of discrete actions, or of components of a continuous one. Raises LabError for nets
    that have no place for an action."""
    net_spec = net_for_role(agent, "critic")
    device = resolve_device(net_spec.gpu)
    num_values = num_actions
    num_inputs = 0
    if not discrete:
        num_values = 1
        num_inputs = num_actions
    returns = build_return_distribution(algorithm)
    size = 1
    if returns is not None:
        size = returns.size
    heads = [Head(num_values * size, net_spec.init_std, per_action=size)]

    def build_critic() -> nn.Module:
        net = build_net(net_spec, layout, heads, generator, num_actions=num_inputs)
        if returns is None:
            return net
        return ReturnHead(net, returns)

    def build_nets() -> nn.ModuleList:
        nets = [build_critic() for _ in range(algorithm.num_critics)]
        if algorithm.spectral_norm:
            for net in nets:
                normalise_spectrum(net, generator)
        return nn.ModuleList(nets).to(device).train(False)

    online = build_nets()
    flat = FlatParameters(online)
    targets = None
    target_network = None
    if algorithm.HAS_TARGETS:
        targets = build_nets()
        for module in targets.modules():
            if isinstance(module, ParametrizationList):
                module.train(True)  # its singular vectors follow the averaged weights
        target_network = build_target_network(net_spec, flat, FlatParameters(targets))
    return Critics(
        nets=online,
        targets=targets,
        discrete=discrete,
        joins_features=joins_features(net_spec, layout),
        transform=ValueTransform(algorithm.symlog, normalize=False),
        optimizer=build_optimizer(net_spec, flat),
        target_network=target_network,
        climbed=algorithm.CLIMBED,
        subset_size=algorithm.target_critics,
    )


def build_policy_target(
    agent: AgentSpec,
    policy: PolicyOnly,
    family: DistributionFamily,
    layout: ObservationLayout,
) -> TargetNetwork:
    """A second policy that follows `policy` as the critics' targets follow them."""
    net_spec = net_for_role(agent, "actor")
    unused = torch.Generator()  # the target begins equal to the policy
    net = _build_policy(net_spec, family, layout, unused).to(policy.device)
    online = policy.train_state.flats["actor"]
    followed = net_for_role(agent, "critic")
    return build_target_network(followed, online, FlatParameters(net))


def build_target_network(
    spec: NetSpec, online: FlatParameters, target: FlatParameters
) -> TargetNetwork:
    """A target network that follows `online` as the keys of its net say."""
    return TargetNetwork(
        online,
        target,
        update_type=spec.update_type,
        update_frequency=spec.update_frequency,
        tau=schedule_of(spec, "polyak_coef"),
    )


def build_optimizer(
    spec: NetSpec, flat: FlatParameters, bounds: tuple[float, float] | None = None
) -> Optimizer:
    """The optimizer of a net spec that is resolved for one role. `bounds` limit every
    parameter."""
    args = dict(spec.optim_spec.args)
    lr = float(args.pop("lr"))
    learning_rate = LearningRate(lr)
    schedule = spec.lr_scheduler_spec
    if schedule is not None:
        with torch_errors_at(spec.path_of("lr_scheduler_spec"), schedule.name):
            learning_rate = build_learning_rate(lr, schedule.name, schedule.args)
    with torch_errors_at(spec.path_of("optim_spec"), spec.optim_spec.name):
        rule = build_rule(spec.optim_spec.name, args, flat)
    return Optimizer(
        flat,
        rule,
        learning_rate,
        clip_grad_val=spec.clip_grad_val,
        bounds=bounds,
        # a recurrent net waits for lengths of sequences
        cuda_graph=spec.cuda_graph and not spec.is_recurrent,
    )


@contextmanager
def torch_errors_at(path: str, name: str) -> Iterator[None]:
    """Raises LabError with the place in the spec of arguments that a class of torch
    refuses."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        raise LabError(
            f"{path}: torch refuses these arguments of {name}: {error}"
        ) from error


def recurrent_layout(*nets: nn.Module) -> RecurrentLayout | None:
    """The recurrent state of networks that see the same rows: each has its part of it.
    Raises LabError where only one of them is recurrent."""
    recurrent = [net for net in nets if isinstance(net, RecurrentNet)]
    if not recurrent:
        return None
    if len(recurrent) < len(nets):
        raise LabError(
            "agent.critic_net: actor and critic are both recurrent, or neither is"
        )
    total = 0
    for net in recurrent:
        net.offset_state(total)
        total += net.state_size
    return RecurrentLayout(total, recurrent[0].seq_len, recurrent[0].burn_in)


def _free_scale(spec: NetSpec, family: DistributionFamily) -> Tensor | None:
    """The outputs that do not depend on the observation, where spec and family have
    them."""
    if spec.log_std_init is None:
        return None
    if family.initial_scale is None:
        message = "%s = %g changes nothing: the action distribution has no σ"
        logger.warning(message, spec.path_of("log_std_init"), spec.log_std_init)
        return None
    return family.initial_scale(float(spec.log_std_init))
