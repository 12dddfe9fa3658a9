"""Parts that algorithms share when they are built."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from slm_lab.agent.algorithm.algorithm import (
    AgentParts,
    BuildContext,
    Learner,
    seeded_generator,
)
from slm_lab.agent.algorithm.loss import ValueLoss
from slm_lab.agent.algorithm.policy_actor import ActionPolicy, PolicyActor
from slm_lab.agent.distribution.exploration import ExplorationPolicy, Generators
from slm_lab.agent.distribution.family import DistributionFamily, distribution_family
from slm_lab.agent.from_spec.networks import (
    build_policy_value,
    build_q_network,
    torch_errors_at,
)
from slm_lab.agent.net.policy_value import ActingNetwork, PolicyValue
from slm_lab.agent.net.q_network import QNetwork
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.recurrent_state import RecurrentLayout, RecurrentState
from slm_lab.agent.replay_config import ReplayConfig, TrainingSchedule
from slm_lab.spec.role import net_for_role
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import ReplayLearningSpec
from slm_lab.spec.schema.net import Role


@dataclass(frozen=True)
class CriticParts:
    """A policy with a critic, and the loss of the critic."""

    network: PolicyValue
    family: DistributionFamily
    value_loss_fn: ValueLoss


def build_with_critic(context: BuildContext, transform: ValueTransform) -> CriticParts:
    """Actor and critic in one network or two, as the net spec asks."""
    family = distribution_family(
        context.action_space, context.spec.algorithm.action_pdtype
    )
    network = build_policy_value(
        context.spec,
        family,
        context.obs_shape,
        transform,
        seeded_generator(context.seeds.init),
    )
    loss = build_loss(context.spec, "critic")
    if family.from_node is not None and loss.node is not None:
        network.use_nodes(context.obs_shape)
    return CriticParts(network, family, loss)


def build_q(context: BuildContext) -> tuple[QNetwork, DistributionFamily, ValueLoss]:
    """Q(s, ·) with its target, and its loss. By default the best action is taken,
    unless the spec differs."""
    pdtype = context.spec.algorithm.action_pdtype
    family = distribution_family(
        context.action_space, "Argmax" if pdtype == "default" else pdtype
    )
    generator = seeded_generator(context.seeds.init)
    network = build_q_network(
        context.spec, family.param_dim, context.obs_shape, generator
    )
    loss = build_loss(context.spec, "actor")
    if loss.node is not None:
        network.use_nodes(context.obs_shape)
    return network, family, loss


def build_loss(spec: AgentSpec, role: Role) -> ValueLoss:
    """The value loss of the net of `role`."""
    loss = net_for_role(spec, role).loss_spec
    with torch_errors_at("agent.net.loss_spec", loss.name):
        return ValueLoss(getattr(nn, loss.name), loss.args)


def assemble(
    context: BuildContext,
    network: ActingNetwork,
    family: DistributionFamily,
    learner: Learner[Any],
    horizon: int = 1,
    replay: ReplayConfig | None = None,
    warmup: ExplorationPolicy | None = None,
) -> AgentParts:
    """The learner, with an actor that samples from its policy or explores as the spec
    says. With a `warmup` the actor acts by that until training starts."""
    action_policy = ActionPolicy.build(
        context.spec.algorithm, family, context.action_space
    )
    recurrent = network.recurrent
    state = (
        None
        if recurrent is None
        else RecurrentState(context.num_envs, recurrent.state_size)
    )
    generators = Generators(context.seeds.action)
    actor = PolicyActor(network, family, action_policy, generators, state, warmup)
    action_dtype = np.dtype(family.action_dtype)
    return AgentParts(
        actor, learner, horizon, family.action_shape, action_dtype, replay, recurrent
    )


def build_replay_config(
    context: BuildContext,
    spec: ReplayLearningSpec,
    num_steps: int = 1,
    recurrent: RecurrentLayout | None = None,
) -> ReplayConfig:
    """When and on what an algorithm with these keys trains."""
    schedule = TrainingSchedule(
        spec.training_frequency,
        spec.training_start_step,
        spec.training_batch_iter,
        spec.update_to_data,
    )
    return ReplayConfig(
        schedule, spec.gamma, num_steps, context.seeds.sampling, recurrent
    )
