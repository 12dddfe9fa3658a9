"""Decides, when an agent is built, whether it computes by torch, by arrays or by
recorded steps on a GPU."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import nn

from slm_lab.agent.algorithm.actor_critic import ActorCritic
from slm_lab.agent.algorithm.algorithm import AgentParts, Learner
from slm_lab.agent.algorithm.expectation import SQUASHED
from slm_lab.agent.algorithm.policy_actor import PolicyActor
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
from slm_lab.agent.fast.distributions import (
    array_family,
    deterministic_sample,
    squashed_sample,
)
from slm_lab.agent.fast.losses import elementwise
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
from slm_lab.agent.fast.recorded_step import RecordedStep
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.return_distribution import QuantileReturn, ReturnHead


def choose(parts: AgentParts, records: bool = True) -> None:
    """Lets an agent act and learn in the fastest way that its networks, their devices
    and its losses allow. On a CPU that is by arrays, with gradients that are written
    out. On a GPU it is by recorded steps, if `records`. Otherwise torch runs as it is.
    A recorded step keeps the numbers that it was recorded with."""
    learner = parts.learner
    evaluate_by_arrays(learner)
    if isinstance(parts.actor, PolicyActor):
        act_by_arrays(parts.actor)
    if isinstance(learner, SelfImitation):
        learner = learner.inner
    write_out_steps(learner)
    if records:
        record_steps(learner)


def evaluate_by_arrays(learner: Learner[Any]) -> None:
    """Lets networks and targets on a CPU compute by arrays where no gradient is
    needed."""
    flats = (*learner.flats.values(), *learner.train_state.targets)
    on_cpu = [flat.module for flat in flats if flat.vector.is_cpu]
    perceptrons = (
        part
        for network in on_cpu
        for part in network.modules()
        if isinstance(part, MLPNet)
    )
    for perceptron in perceptrons:
        arrays = array_mlp(perceptron)
        if arrays is not None:
            perceptron.without_gradient = arrays.forward_tensor


def act_by_arrays(actor: PolicyActor) -> None:
    """Lets a network on a CPU act by arrays."""
    network = actor.network
    if network.device.type != "cpu":
        return
    for index, net in enumerate(network.nets):
        arrays = array_net(net)
        if arrays is not None:
            network.host_forwards[index] = arrays.forward


def record_steps(learner: Learner[Any]) -> None:
    """Has steps on a GPU replayed as CUDA graphs, if their optimizers have
    `cuda_graph`."""
    is_on_gpu = learner.train_state.failed is not None
    recorded = PPO | VMPO | PQN | QLearner | ReplayActorCritic
    if is_on_gpu and isinstance(learner, recorded):
        learner.step = RecordedStep(learner.step, learner.train_state)


def write_out_steps(learner: Learner[Any]) -> None:
    """Replaces autograd by written-out gradients, where all parts of the losses have
    them."""
    if isinstance(learner, PPO | VMPO | ActorCritic | Reinforce):
        write_out_pass(learner)
    elif isinstance(learner, DistributionalDQN):
        write_out_quantiles(learner)
    elif isinstance(learner, QLearner | SARSA | PQN):
        value_loss = elementwise(learner.value_loss_fn)
        nets = traced_nets(learner.network.nets)
        if value_loss is not None and nets is not None:
            learner.objective = WrittenQ(nets[0], value_loss)
    elif isinstance(learner, ReplayActorCritic):
        write_out_replay_steps(learner)


def write_out_pass(learner: PPO | VMPO | ActorCritic | Reinforce) -> None:
    """Uses written-out policy gradients, if the distributions, nets and value loss have
    them."""
    nets = traced_nets(learner.network.nets)
    kind = array_family(learner.family)
    value_loss = None
    if not isinstance(learner, Reinforce):
        value_loss = elementwise(learner.value_loss_fn)
        if value_loss is None:
            return
    if nets is not None and kind is not None:
        learner.evaluate = partial(ArrayPass, nets, kind, value_loss)


def write_out_quantiles(learner: DistributionalDQN) -> None:
    """Uses the written-out loss of quantiles, if their levels are fixed."""
    head = learner.network.nets[0]
    if isinstance(head, ReturnHead) and isinstance(learner.returns, QuantileReturn):
        nets = traced_nets([without_head(head)])
        if nets is not None:
            learner.return_objective = WrittenQuantiles(nets[0], learner.returns)


def write_out_replay_steps(learner: ReplayActorCritic) -> None:
    """Uses the written-out steps of critics and actor for continuous actions, and of
    the temperature for all actions."""
    temperature = learner.temperature
    if isinstance(temperature, TunedTemperature) and temperature.log_alpha.is_cpu:
        temperature.loss = written_temperature
    loss_of_critic = written_critic_loss(learner)
    actor = traced_nets(learner.actor.nets)
    critics = traced_nets([without_head(net) for net in learner.critic.nets])
    if (
        loss_of_critic is None
        or actor is None
        or critics is None
        or learner.spec.symlog
    ):
        return
    sample = None
    if isinstance(learner, TD3):
        sample = deterministic_sample
    elif learner.policy is SQUASHED and isinstance(
        learner, SoftActorCritic | REDQ | TQC
    ):
        sample = squashed_sample
    if sample is not None:
        learner.critic_objective = WrittenCritics(learner, critics, loss_of_critic)
        learner.actor_objective = WrittenActor(learner, actor[0], critics, sample)


def written_critic_loss(learner: ReplayActorCritic) -> CriticLoss | None:
    """The written-out loss of a critic; None if it has none."""
    if isinstance(learner, TQC):
        return loss_of_quantiles(learner.returns)
    value_loss = elementwise(learner.value_loss_fn)
    if value_loss is None:
        return None
    return loss_of_values(value_loss)


def without_head(net: nn.Module) -> nn.Module:
    """The net whose outputs describe the distribution of the return, or the net
    itself."""
    if isinstance(net, ReturnHead):
        return net.net
    return net


def traced_nets(nets: Sequence[nn.Module]) -> list[TracedNet] | None:
    """Nets on a CPU as arrays that can learn; None if one cannot."""
    arrays: list[TracedNet] = []
    for net in nets:
        on_cpu = all(parameter.is_cpu for parameter in net.parameters())
        traced = None
        if on_cpu:
            traced = array_net(net)
        if not isinstance(traced, TracedNet):
            return None
        arrays.append(traced)
    return arrays
