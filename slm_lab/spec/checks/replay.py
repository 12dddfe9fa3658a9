"""Checks an algorithm against its replay memory and its environments."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.schema.algorithm import DQNBaseSpec, ReplayLearningSpec
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import ReplaySpec
from slm_lab.spec.unrolls import trains_by_frequency


def _learning_begins(
    algorithm: ReplayLearningSpec, env: EnvSpec, blocks: Blocks
) -> Iterator[Problem]:
    end = f"env.max_frame ({env.max_frame}), or the run ends before anything is learned"
    start, frequency = algorithm.training_start_step, algorithm.training_frequency
    if start >= env.max_frame:
        yield Problem("agent.algorithm.training_start_step", f"must be < {end}", start)
    if trains_by_frequency(algorithm, blocks.meta) and frequency > env.max_frame:
        yield Problem(
            "agent.algorithm.training_frequency", f"must be <= {end}", frequency
        )


def _replay_holds_the_steps_of_a_return(
    memory: ReplaySpec, env: EnvSpec, blocks: Blocks
) -> Iterator[Problem]:
    algorithm = blocks.algorithm
    num_steps = algorithm.num_step_returns if isinstance(algorithm, DQNBaseSpec) else 1
    least = env.num_envs * num_steps
    if memory.max_size < least:
        message = (
            f"must be >= num_envs × num_step_returns = {env.num_envs} × {num_steps} = "
            f"{least}, or no n-step return is ever whole"
        )
        yield Problem("agent.memory.max_size", message, memory.max_size)


def _newest_steps_leave_room(memory: ReplaySpec, env: EnvSpec) -> Iterator[Problem]:
    if memory.use_cer and memory.batch_size <= env.num_envs:
        message = (
            f"must be > env.num_envs = {env.num_envs} with use_cer: the newest step "
            "of every environment is part of each batch, and would fill it"
        )
        yield Problem("agent.memory.batch_size", message, memory.batch_size)


def _device_prepares_no_observations(
    memory: ReplaySpec, env: EnvSpec, blocks: Blocks
) -> Iterator[Problem]:
    recurrent = any(net.type == "RecurrentNet" for net in blocks.nets.values())
    if memory.storage == "device" and (env.normalize_obs or recurrent):
        reason = "env.normalize_obs" if env.normalize_obs else "RecurrentNet"
        message = f'{reason} prepares sampled observations on the CPU; use "memory"'
        yield Problem("agent.memory.storage", message, memory.storage)


def _update_to_data_is_exact(algorithm: ReplayLearningSpec) -> Iterator[Problem]:
    for key in ("training_iter", "training_batch_iter"):
        value = getattr(algorithm, key)
        if algorithm.update_to_data is not None and value != 1:
            message = (
                "must be 1 with update_to_data, which sets the number of gradient "
                "steps alone"
            )
            yield Problem(f"agent.algorithm.{key}", message, value)


REPLAY_CHECKS = (
    _learning_begins,
    _update_to_data_is_exact,
    _replay_holds_the_steps_of_a_return,
    _newest_steps_leave_room,
    _device_prepares_no_observations,
)
