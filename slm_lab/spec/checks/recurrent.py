"""Checks specs with recurrent nets."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.schema.algorithm import IMITATING, DQNBaseSpec, EntropyRegularisedSpec, SARSASpec
from slm_lab.spec.schema.memory import PrioritizedReplaySpec, ReplaySpec
from slm_lab.spec.schema.net import RecurrentNetSpec
from slm_lab.spec.unrolls import trains_by_frequency, trains_freely

LEARN_FROM_SEQUENCES = "PPO, ActorCritic, Reinforce, VanillaDQN, DQN and DoubleDQN"


def recurrent_problems(blocks: Blocks) -> list[Problem]:
    """All contradictions with recurrent nets, in the order of the file."""
    net = blocks.net
    if not isinstance(net, RecurrentNetSpec):
        if isinstance(blocks.critic_net, RecurrentNetSpec) and net is not None:
            return [_both_or_neither(blocks.critic_net.type)]
        return []
    checks = (_algorithm, _critic, _replayed_steps, _replayed_sequences)
    return [problem for check in checks for problem in check(blocks, net)]


def _both_or_neither(critic: str) -> Problem:
    message = "actor and critic are both a RecurrentNet, or neither is"
    return Problem("agent.critic_net.type", message, critic)


def _algorithm(blocks: Blocks, net: RecurrentNetSpec) -> Iterator[Problem]:
    algorithm = blocks.algorithm
    single_steps = isinstance(algorithm, SARSASpec | EntropyRegularisedSpec)
    if algorithm is not None and (single_steps or algorithm.name in IMITATING):
        message = f"{algorithm.name} learns from single steps; it is for {LEARN_FROM_SEQUENCES}"
        yield Problem("agent.net.type", message, net.type)


def _critic(blocks: Blocks, net: RecurrentNetSpec) -> Iterator[Problem]:
    critic = blocks.critic_net
    if critic is not None and not isinstance(critic, RecurrentNetSpec):
        yield _both_or_neither(critic.type)
    elif critic is not None and critic.seq_len != net.seq_len:
        message = f"must equal that of agent.net, {net.seq_len}"
        yield Problem("agent.critic_net.seq_len", message, critic.seq_len)
    for key in ("actor_seq_len", "critic_seq_len", "actor_burn_in", "critic_burn_in"):
        if key in net.variants:
            shared_key = key.partition("_")[2]
            message = f"actor and critic learn from the same sequences; set {shared_key} instead"
            yield Problem(f"agent.net.{key}", message, net.variants[key])


def _replayed_steps(blocks: Blocks, net: RecurrentNetSpec) -> Iterator[Problem]:
    """Rejects replay settings that draw single steps."""
    memory, algorithm = blocks.memory, blocks.algorithm
    if isinstance(memory, PrioritizedReplaySpec):
        message = "draws single steps, and a RecurrentNet learns from sequences; use Replay"
        yield Problem("agent.memory.name", message, memory.name)
    elif isinstance(memory, ReplaySpec) and memory.use_cer:
        message = "adds single steps, and a RecurrentNet learns from sequences; set it to false"
        yield Problem("agent.memory.use_cer", message, True)
    if isinstance(algorithm, DQNBaseSpec) and algorithm.num_step_returns > 1:
        message = "must be 1 with a RecurrentNet: its state is known after every single step"
        yield Problem("agent.algorithm.num_step_returns", message, algorithm.num_step_returns)


def _replayed_sequences(blocks: Blocks, net: RecurrentNetSpec) -> Iterator[Problem]:
    memory, algorithm, env = blocks.memory, blocks.algorithm, blocks.env
    if not isinstance(memory, ReplaySpec):
        if net.burn_in:
            message = "is for replay memories, and this one's rollouts are used once; remove it"
            yield Problem("agent.net.burn_in", message, net.burn_in)
        return
    if memory.batch_size % net.seq_len:
        message = f"must be a multiple of agent.net.seq_len ({net.seq_len}): it counts steps"
        yield Problem("agent.memory.batch_size", message, memory.batch_size)
    if isinstance(algorithm, DQNBaseSpec) and env is not None:
        needed = net.seq_len * env.num_envs
        by_frequency = trains_by_frequency(algorithm, blocks.meta)
        event = algorithm.training_frequency if by_frequency else 0
        first = max(algorithm.training_start_step, event)
        if first < needed and not trains_freely(blocks.meta):
            message = f"must be at least {needed}: seq_len × num_envs, one sequence of each"
            yield Problem(
                "agent.algorithm.training_start_step", message, algorithm.training_start_step
            )
        if memory.max_size < needed:
            message = f"must be at least {needed}: seq_len × num_envs, one sequence of each"
            yield Problem("agent.memory.max_size", message, memory.max_size)
