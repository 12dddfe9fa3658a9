"""Checks specs with recurrent nets."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.schema.algorithm import (
    IMITATING,
    AlgorithmSpec,
    DQNBaseSpec,
    EntropyRegularisedSpec,
    SARSASpec,
)
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import MemorySpec, PrioritizedReplaySpec, ReplaySpec
from slm_lab.spec.schema.net import NetSpec, RecurrentNetSpec
from slm_lab.spec.unrolls import trains_by_frequency, trains_freely

LEARN_FROM_SEQUENCES = "PPO, ActorCritic, Reinforce, VanillaDQN, DQN and DoubleDQN"


def _algorithm(algorithm: AlgorithmSpec, net: RecurrentNetSpec) -> Iterator[Problem]:
    single_steps = isinstance(algorithm, SARSASpec | EntropyRegularisedSpec)
    if single_steps or algorithm.name in IMITATING:
        message = (
            f"{algorithm.name} learns from single steps; it is for "
            f"{LEARN_FROM_SEQUENCES}"
        )
        yield Problem("agent.net.type", message, net.type)


def _critic(net: NetSpec, critic_net: NetSpec) -> Iterator[Problem]:
    recurrent = [
        each for each in (net, critic_net) if isinstance(each, RecurrentNetSpec)
    ]
    lengths = [each.seq_len for each in recurrent]
    if len(recurrent) == 1:
        message = "actor and critic are both a RecurrentNet, or neither is"
        yield Problem("agent.critic_net.type", message, critic_net.type)
    elif len(set(lengths)) == 2:
        message = f"must equal that of agent.net, {lengths[0]}"
        yield Problem("agent.critic_net.seq_len", message, lengths[1])


def _sequences(net: RecurrentNetSpec, memory: ReplaySpec) -> Iterator[Problem]:
    if memory.batch_size % net.seq_len:
        message = (
            f"must be a multiple of agent.net.seq_len ({net.seq_len}): it counts steps"
        )
        yield Problem("agent.memory.batch_size", message, memory.batch_size)
    if isinstance(memory, PrioritizedReplaySpec):
        message = (
            "draws single steps, and a RecurrentNet learns from sequences; use Replay"
        )
        yield Problem("agent.memory.name", message, memory.name)
    elif memory.use_cer:
        message = (
            "adds single steps, and a RecurrentNet learns from sequences; set it to "
            "false"
        )
        yield Problem("agent.memory.use_cer", message, True)


def _one_step_returns(
    net: RecurrentNetSpec, algorithm: DQNBaseSpec
) -> Iterator[Problem]:
    if algorithm.num_step_returns > 1:
        message = (
            "must be 1 with a RecurrentNet: its state is known after every single step"
        )
        yield Problem(
            "agent.algorithm.num_step_returns", message, algorithm.num_step_returns
        )


def _burn_in(net: RecurrentNetSpec, memory: MemorySpec | None) -> Iterator[Problem]:
    if net.burn_in and not isinstance(memory, ReplaySpec):
        message = (
            "is for replay memories, and this one's rollouts are used once; remove it"
        )
        yield Problem("agent.net.burn_in", message, net.burn_in)


def _first_sequences(
    net: RecurrentNetSpec,
    algorithm: DQNBaseSpec,
    memory: ReplaySpec,
    env: EnvSpec,
    blocks: Blocks,
) -> Iterator[Problem]:
    needed = net.seq_len * env.num_envs
    message = f"must be at least {needed}: seq_len × num_envs, one sequence of each"
    by_frequency = trains_by_frequency(algorithm, blocks.meta)
    start, event = algorithm.training_start_step, algorithm.training_frequency
    first = max(start, event) if by_frequency else start
    if first < needed and not trains_freely(blocks.meta):
        yield Problem("agent.algorithm.training_start_step", message, start)
    if memory.max_size < needed:
        yield Problem("agent.memory.max_size", message, memory.max_size)


RECURRENT_CHECKS = (
    _algorithm,
    _critic,
    _sequences,
    _one_step_returns,
    _burn_in,
    _first_sequences,
)
