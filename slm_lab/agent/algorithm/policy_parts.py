"""What the policy-gradient algorithms have in common when they are built."""

from dataclasses import dataclass

import numpy as np
from torch import nn

from slm_lab.agent.algorithm.algorithm import (
    AgentParts,
    BuildContext,
    Learner,
    seeded_generator,
)
from slm_lab.agent.algorithm.loss import ElementwiseLoss
from slm_lab.agent.algorithm.policy_actor import PolicyActor
from slm_lab.agent.batch import Rollout
from slm_lab.agent.distribution import DistributionFamily, distribution_family
from slm_lab.agent.net.build import build_policy_only, build_policy_value
from slm_lab.agent.net.policy_value import ActingNetwork, PolicyOnly, PolicyValue
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.build import refusals_told
from slm_lab.spec.role import net_for_role


@dataclass(frozen=True)
class CriticParts:
    """A policy with a critic, and the loss of the critic."""

    network: PolicyValue
    family: DistributionFamily
    value_loss_fn: ElementwiseLoss


def build_with_critic(context: BuildContext, transform: ValueTransform) -> CriticParts:
    """Actor and critic in one network or two, as the net spec asks."""
    family = distribution_family(context.action_space, context.spec.algorithm.action_pdtype)
    network = build_policy_value(
        context.spec,
        family,
        context.obs_shape,
        transform,
        seeded_generator(context.seeds.init),
        context.sync,
    )
    loss = net_for_role(context.spec, "critic").loss_spec
    with refusals_told("agent.net.loss_spec", loss.name):
        loss_fn = getattr(nn, loss.name)(**loss.args, reduction="none")
    return CriticParts(network, family, loss_fn)


def build_without_critic(context: BuildContext) -> tuple[PolicyOnly, DistributionFamily]:
    """A policy alone."""
    family = distribution_family(context.action_space, context.spec.algorithm.action_pdtype)
    generator = seeded_generator(context.seeds.init)
    network = build_policy_only(context.spec, family, context.obs_shape, generator, context.sync)
    return network, family


def assemble(
    context: BuildContext,
    network: ActingNetwork,
    family: DistributionFamily,
    learner: Learner[Rollout],
    horizon: int,
) -> AgentParts:
    """The learner with the actor that samples from its policy."""
    actor = PolicyActor(network, family, seeded_generator(context.seeds.action))
    return AgentParts(actor, learner, horizon, family.action_shape, np.dtype(family.action_dtype))
