"""Parts that algorithms share when they are built."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from torch import Tensor, nn

from slm_lab.agent.algorithm.algorithm import (
    Actor,
    AgentParts,
    BuildContext,
    Learner,
    seeded_generator,
)
from slm_lab.agent.algorithm.loss import ValueLoss
from slm_lab.agent.algorithm.policy_actor import PolicyActor, ScheduledExploration
from slm_lab.agent.algorithm.policy_pass import PolicyPass, TorchPass
from slm_lab.agent.algorithm.report import number
from slm_lab.agent.algorithm.tensor_actor import TensorActor
from slm_lab.agent.distribution.exploration import ExplorationPolicy, Generators
from slm_lab.agent.distribution.family import DistributionFamily, distribution_family
from slm_lab.agent.from_spec.networks import (
    build_policy_value,
    build_q_network,
    build_return_distribution,
    torch_errors_at,
)
from slm_lab.agent.from_spec.schedule import schedule_of
from slm_lab.agent.memory.memory import ReplayConfig, TrainingSchedule
from slm_lab.agent.net.policy_value import ActingNetwork, PolicyValue
from slm_lab.agent.net.q_network import QNetwork, value_of
from slm_lab.agent.net.return_distribution import ReturnDistribution
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.optimizer import Loss
from slm_lab.agent.recurrent_state import RecurrentLayout, RecurrentState
from slm_lab.agent.torch_versions import attribute_of
from slm_lab.spec.schema.agent import AgentSpec, net_for_role
from slm_lab.spec.schema.algorithm import ReplayLearningSpec
from slm_lab.spec.schema.net import Role


@dataclass(frozen=True)
class CriticParts:
    """A policy with a critic, and the loss of the critic."""

    network: PolicyValue
    family: DistributionFamily
    value_loss_fn: ValueLoss

    def evaluate(self, obs: Tensor, action: Tensor) -> PolicyPass:
        """A pass over observations and actions, both (B, …)."""
        return TorchPass(
            network=self.network,
            family=self.family,
            value_loss_fn=self.value_loss_fn,
            obs=obs,
            action=action,
        )


def build_with_critic(context: BuildContext, transform: ValueTransform) -> CriticParts:
    """Actor and critic in one network or two, as the net spec asks."""
    family = distribution_family(
        context.action_space, context.spec.algorithm.action_pdtype
    )
    generator = seeded_generator(context.seeds.init)
    network = build_policy_value(
        spec=context.spec,
        family=family,
        layout=context.layout,
        transform=transform,
        generator=generator,
    )
    return CriticParts(network, family, build_loss(context.spec, "critic"))


class QPrediction(NamedTuple):
    """The loss of Q(s, a) for a batch."""

    loss: Loss
    q: Tensor
    """(B,) Q(s, a) without a gradient"""
    mean_q: float | Tensor
    error: Tensor
    """(B,) the error of each prediction: of Q its target less Q, of a distribution its
    loss."""


TargetOf: TypeAlias = Callable[[Tensor], Tensor]
"""Maps Q(s, a), (B,), to its target, (B,)."""
QObjective: TypeAlias = Callable[[Tensor, Tensor, TargetOf, Tensor | None], QPrediction]
"""Takes observations and actions, both (B, …), targets and weights (B,)."""


@dataclass(frozen=True)
class QParts:
    """Q(s, ·) with its target, the distribution of actions, and the loss."""

    network: QNetwork
    family: DistributionFamily
    value_loss_fn: ValueLoss

    def torch_objective(
        self, obs: Tensor, action: Tensor, target_of: TargetOf, weight: Tensor | None
    ) -> QPrediction:
        """The loss by autograd."""
        q = value_of(self.network.q(obs), action)
        taken = q.detach()
        target = target_of(taken)
        loss = self.value_loss_fn(q, target, weight)
        return QPrediction(loss, taken, number(taken.mean()), target - taken)


@dataclass(frozen=True)
class ReturnParts(QParts):
    """Networks whose outputs describe the distribution of the return."""

    returns: ReturnDistribution


def build_q(context: BuildContext) -> QParts:
    """Q(s, ·) of n discrete actions. By default the best action is taken, unless the
    spec differs."""
    pdtype = context.spec.algorithm.action_pdtype
    family = distribution_family(
        context.action_space, "Argmax" if pdtype == "default" else pdtype
    )
    generator = seeded_generator(context.seeds.init)
    returns = build_return_distribution(context.spec.algorithm)
    network = build_q_network(
        spec=context.spec,
        num_actions=family.param_dim,
        layout=context.layout,
        generator=generator,
        returns=returns,
        num_cosines=context.spec.algorithm.num_cosines,
    )
    value_loss_fn = build_loss(context.spec, "actor")
    if returns is None:
        return QParts(network, family, value_loss_fn)
    return ReturnParts(network, family, value_loss_fn, returns)


def build_loss(spec: AgentSpec, role: Role) -> ValueLoss:
    """The value loss of the net of `role`."""
    net = net_for_role(spec, role)
    loss = net.loss_spec
    with torch_errors_at(net.path_of("loss_spec"), loss.name):
        return ValueLoss(attribute_of(nn, loss.name), loss.args)


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
    action_policy = ScheduledExploration.build(
        context.spec.algorithm, family, context.action_space, context.has_mask
    )
    recurrent = network.recurrent
    state = None
    if recurrent is not None:
        state = RecurrentState(context.num_envs, recurrent.state_size)
    actor: Actor = PolicyActor(
        network=network,
        family=family,
        action_policy=action_policy,
        generators=Generators(context.seeds.action),
        recurrent=state,
        warmup=warmup,
    )
    if context.steps_on_device:
        actor = TensorActor(network, family, context.seeds.action)
    return AgentParts(
        actor=actor,
        learner=learner,
        horizon=horizon,
        action_shape=family.action_shape,
        action_dtype=np.dtype(family.action_dtype),
        replay=replay,
        recurrent=recurrent,
    )


def build_replay_config(
    context: BuildContext,
    spec: ReplayLearningSpec,
    num_steps: int = 1,
    recurrent: RecurrentLayout | None = None,
) -> ReplayConfig:
    """The replay of an algorithm with these keys."""
    schedule = TrainingSchedule(
        frequency=spec.training_frequency,
        start=spec.training_start_step,
        batches_per_event=spec.training_batch_iter,
        update_to_data=spec.update_to_data,
    )
    return ReplayConfig(
        schedule=schedule,
        gamma=spec.gamma,
        num_steps=num_steps,
        seed=context.seeds.sampling,
        recurrent=recurrent,
        gamma_schedule=schedule_of(spec, "gamma"),
    )
