"""Decides, when an agent is built, whether it computes by torch, by arrays or by
recorded steps on a GPU."""

from collections.abc import Callable, Sequence
from functools import partial, singledispatch
from typing import Any

from torch import nn

from slm_lab.agent.algorithm.actor_critic import ActorCritic
from slm_lab.agent.algorithm.algorithm import AgentParts, Learner
from slm_lab.agent.algorithm.policy_actor import PolicyActor
from slm_lab.agent.algorithm.policy_parts import CriticParts, QParts
from slm_lab.agent.algorithm.ppo import PPO
from slm_lab.agent.algorithm.pqn import PQN
from slm_lab.agent.algorithm.q_learning import DistributionalDQN, QLearner
from slm_lab.agent.algorithm.reinforce import Reinforce
from slm_lab.agent.algorithm.replay_actor_critic import ReplayActorCritic
from slm_lab.agent.algorithm.sac import REDQ, TQC, SoftActorCritic
from slm_lab.agent.algorithm.sarsa import SARSA
from slm_lab.agent.algorithm.sil import SelfImitation
from slm_lab.agent.algorithm.td3 import TD3
from slm_lab.agent.algorithm.temperature import TunedTemperature
from slm_lab.agent.algorithm.vmpo import VMPO
from slm_lab.agent.fast.distributions import ARRAY_SAMPLES, array_family
from slm_lab.agent.fast.losses import Elementwise, elementwise
from slm_lab.agent.fast.networks import TracedNet, array_mlp, array_net
from slm_lab.agent.fast.objectives import (
    ArrayPass,
    CriticLoss,
    WrittenActor,
    WrittenCritics,
    WrittenQ,
    WrittenQuantiles,
    loss_of_quantiles,
    loss_of_values,
    written_temperature,
)
from slm_lab.agent.fast.product import linear_by_numpy
from slm_lab.agent.fast.recorded_step import RecordedStep
from slm_lab.agent.net.layers import EmptyLinear
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.return_distribution import QuantileReturn, ReturnHead


def choose(parts: AgentParts, records: bool = True) -> None:
    """Lets an agent act and learn in the fastest way that its networks, their devices
    and its losses allow. On a CPU that is by arrays, with gradients that are written
    out. On a GPU it is by recorded steps, if `records` and its optimizers have
    `cuda_graph`. Otherwise torch runs as it is. A recorded step keeps the numbers that
    it was recorded with."""
    learner = parts.learner
    for flat in (*learner.flats.values(), *learner.train_state.targets):
        if flat.vector.is_cpu:
            compute_by_arrays(flat.module)
    if isinstance(parts.actor, PolicyActor):
        act_by_arrays(parts.actor)
    if isinstance(learner, SelfImitation):
        learner = learner.inner
    write_out_steps(learner)
    is_on_gpu = learner.train_state.failed is not None
    if records and is_on_gpu and learner.step is not None:
        learner.step = RecordedStep(learner.step, learner.train_state)


def compute_by_arrays(network: nn.Module) -> None:
    """Lets a network on a CPU compute by arrays where no gradient is needed. Under
    autograd NumPy multiplies in the layers that ask for it."""
    for part in network.modules():
        if isinstance(part, EmptyLinear) and part.by_numpy:
            part.multiply = linear_by_numpy
        elif isinstance(part, MLPNet):
            arrays = array_mlp(part)
            if arrays is not None:
                part.without_gradient = arrays.forward_tensor


def act_by_arrays(actor: PolicyActor) -> None:
    """Lets a network on a CPU act by arrays."""
    for index, net in enumerate(actor.network.nets):
        arrays = array_net(net)
        if arrays is not None:
            actor.network.host_forwards[index] = arrays.forward


TORCH_OBJECTIVES = (
    CriticParts.evaluate,
    QParts.torch_objective,
    DistributionalDQN.torch_objective,
    ReplayActorCritic.torch_critic_objective,
    TQC.torch_critic_objective,
    ReplayActorCritic.torch_actor_objective,
)
"""The objectives that have written-out gradients."""


def is_torch_objective(objective: Callable[..., Any]) -> bool:
    """Whether a written-out objective may replace this one. A learner's own may be
    another function: it stays."""
    return getattr(objective, "__func__", None) in TORCH_OBJECTIVES


@singledispatch
def write_out_steps(learner: Learner[Any]) -> None:
    """Replaces autograd by written-out gradients, where all parts of the losses have
    them. Each class of learner below says what it needs; others stay with torch."""


@write_out_steps.register
def _(learner: PPO | VMPO | ActorCritic) -> None:
    value_loss = elementwise(learner.value_loss_fn)
    if value_loss is not None and is_torch_objective(learner.evaluate):
        write_out_pass(learner, value_loss)


@write_out_steps.register
def _(learner: Reinforce) -> None:
    write_out_pass(learner, None)


@write_out_steps.register
def _(learner: QLearner | SARSA | PQN) -> None:
    value_loss = elementwise(learner.value_loss_fn)
    nets = traced_nets(learner.network.nets)
    if value_loss is None or nets is None:
        return
    if is_torch_objective(learner.objective):
        learner.objective = WrittenQ(nets[0], value_loss)


@write_out_steps.register
def _(learner: DistributionalDQN) -> None:
    """The levels of its quantiles must be fixed."""
    head = learner.network.nets[0]
    if isinstance(head, ReturnHead) and isinstance(learner.returns, QuantileReturn):
        nets = traced_nets([without_head(head)])
        if nets is not None and is_torch_objective(learner.return_objective):
            learner.return_objective = WrittenQuantiles(nets[0], learner.returns)


@write_out_steps.register
def _(learner: ReplayActorCritic) -> None:
    write_out_replay_steps(learner, None)


@write_out_steps.register
def _(learner: SoftActorCritic | REDQ | TD3) -> None:
    write_out_replay_steps(learner, loss_of_values(learner.value_loss_fn))


@write_out_steps.register
def _(learner: TQC) -> None:
    write_out_replay_steps(learner, loss_of_quantiles(learner.returns))


def write_out_pass(
    learner: PPO | VMPO | ActorCritic | Reinforce, value_loss: Elementwise | None
) -> None:
    """Uses written-out policy gradients, if distributions and nets have them."""
    nets = traced_nets(learner.network.nets)
    kind = array_family(learner.family)
    if nets is not None and kind is not None:
        learner.evaluate = partial(ArrayPass, nets, kind, value_loss)


def write_out_replay_steps(
    learner: ReplayActorCritic, critic_loss: CriticLoss | None
) -> None:
    """Uses the written-out step of the temperature, and those of critics and actor, if
    the loss of the critics, the policy and the nets have them."""
    temperature = learner.temperature
    if isinstance(temperature, TunedTemperature) and temperature.log_alpha.is_cpu:
        temperature.loss = written_temperature
    sample = ARRAY_SAMPLES.get(learner.policy.of)
    if critic_loss is None or sample is None or learner.spec.symlog:
        return
    actor = traced_nets(learner.actor.nets)
    critics = traced_nets([without_head(net) for net in learner.critic.nets])
    if actor is None or critics is None:
        return
    if is_torch_objective(learner.critic_objective):
        learner.critic_objective = WrittenCritics(learner, critics, critic_loss)
    if is_torch_objective(learner.actor_objective):
        learner.actor_objective = WrittenActor(learner, actor[0], critics, sample)


def without_head(net: nn.Module) -> nn.Module:
    """The net whose outputs describe the distribution of the return, or the net
    itself."""
    if isinstance(net, ReturnHead):
        return net.net
    return net


def traced_nets(nets: Sequence[nn.Module]) -> list[TracedNet] | None:
    """Nets as arrays that can learn; None if one cannot."""
    arrays = [array_net(net) for net in nets]
    traced = [net for net in arrays if isinstance(net, TracedNet)]
    return traced if len(traced) == len(arrays) else None
