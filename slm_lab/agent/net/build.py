"""From the net blocks of an agent spec to networks with optimizers."""

import torch
from torch import Tensor, nn

from slm_lab.agent.distribution import DistributionFamily
from slm_lab.agent.net.device import resolve_device
from slm_lab.agent.net.policy_value import (
    PolicyHead,
    PolicyOnly,
    PolicyValue,
    SeparatePolicyValue,
    SharedPolicyValue,
)
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.build import build_optimizer
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.sync import GradientSync
from slm_lab.core.registry import NETS
from slm_lab.spec.role import net_for_role
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.net import NetSpec


def build_policy_value(
    spec: AgentSpec,
    family: DistributionFamily,
    obs_shape: tuple[int, ...],
    transform: ValueTransform,
    generator: torch.Generator,
    sync: GradientSync,
) -> PolicyValue:
    """Actor and critic as the net spec asks: one body or two, initialised from `generator`.

    They are in the mode for acting; a learner sets the other for as long as it learns.
    """
    network = _build(spec, family, obs_shape, transform, generator, sync)
    network.train(False)
    return network


def _build(
    spec: AgentSpec,
    family: DistributionFamily,
    obs_shape: tuple[int, ...],
    transform: ValueTransform,
    generator: torch.Generator,
    sync: GradientSync,
) -> PolicyValue:
    actor_spec = net_for_role(spec, "actor")
    critic_spec = net_for_role(spec, "critic")
    device = resolve_device(actor_spec.gpu)
    log_std = _free_log_std(actor_spec, family)
    policy_dim = family.param_dim - (0 if log_std is None else family.free_log_std_dim)
    actor_gain, critic_gain = actor_spec.init_std, critic_spec.init_std
    if actor_spec.shared:
        body = build_net(
            actor_spec, obs_shape, [policy_dim, 1], [actor_gain, critic_gain], generator
        )
        net = PolicyHead(body, log_std)
        flat = FlatParameters(nn.ModuleList([net, transform]).to(device))
        return SharedPolicyValue(net, transform, build_optimizer(actor_spec, flat, sync))
    actor = PolicyHead(
        build_net(actor_spec, obs_shape, [policy_dim], [actor_gain], generator), log_std
    )
    critic = build_net(critic_spec, obs_shape, [1], [critic_gain], generator)
    actor_flat = FlatParameters(actor.to(device))
    critic_flat = FlatParameters(nn.ModuleList([critic, transform]).to(device))
    return SeparatePolicyValue(
        actor,
        critic,
        transform,
        build_optimizer(actor_spec, actor_flat, sync),
        build_optimizer(critic_spec, critic_flat, sync),
    )


def build_policy_only(
    spec: AgentSpec,
    family: DistributionFamily,
    obs_shape: tuple[int, ...],
    generator: torch.Generator,
    sync: GradientSync,
) -> PolicyOnly:
    """A policy without a critic, initialised from `generator`."""
    net_spec = net_for_role(spec, "actor")
    log_std = _free_log_std(net_spec, family)
    policy_dim = family.param_dim - (0 if log_std is None else family.free_log_std_dim)
    body = build_net(net_spec, obs_shape, [policy_dim], [net_spec.init_std], generator)
    net = PolicyHead(body, log_std)
    flat = FlatParameters(net.to(resolve_device(net_spec.gpu)))
    network = PolicyOnly(net, build_optimizer(net_spec, flat, sync))
    network.train(False)
    return network


def build_net(
    spec: NetSpec,
    obs_shape: tuple[int, ...],
    head_dims: list[int],
    head_gains: list[float | None],
    generator: torch.Generator,
) -> nn.Module:
    """The registered net that the spec names, with one linear head per entry of `head_dims`.

    A head with a gain begins as that multiple of an orthogonal matrix, one without as `init_fn`
    has it.
    """
    net: nn.Module = NETS.load(spec.type)(spec, obs_shape, head_dims, head_gains, generator)
    return net


def _free_log_std(spec: NetSpec, family: DistributionFamily) -> Tensor | None:
    if spec.log_std_init is None or family.free_log_std_dim == 0:
        return None
    return torch.full((family.free_log_std_dim,), float(spec.log_std_init))
