"""Checks an algorithm against its replay memory and its environments."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.schema.algorithm import DQNBaseSpec, ReplayLearningSpec
from slm_lab.spec.schema.memory import ReplaySpec
from slm_lab.spec.unrolls import trains_by_frequency


def _learning_begins(blocks: Blocks) -> Iterator[Problem]:
    algorithm, env = blocks.algorithm, blocks.env
    if not isinstance(algorithm, ReplayLearningSpec) or env is None:
        return
    path, end = "agent.algorithm", f"env.max_frame ({env.max_frame})"
    if algorithm.training_start_step >= env.max_frame:
        message = f"must be < {end}, or the run ends before anything is learned"
        start = algorithm.training_start_step
        yield Problem(f"{path}.training_start_step", message, start)
    by_frequency = trains_by_frequency(algorithm, blocks.meta)
    if by_frequency and algorithm.training_frequency > env.max_frame:
        message = f"must be <= {end}, or the run ends before anything is learned"
        frequency = algorithm.training_frequency
        yield Problem(f"{path}.training_frequency", message, frequency)


def _replay_holds_the_steps_of_a_return(blocks: Blocks) -> Iterator[Problem]:
    algorithm, memory, env = blocks.algorithm, blocks.memory, blocks.env
    if not isinstance(memory, ReplaySpec) or env is None:
        return
    num_steps = algorithm.num_step_returns if isinstance(algorithm, DQNBaseSpec) else 1
    least = env.num_envs * num_steps
    if memory.max_size < least:
        message = (
            f"must be >= num_envs × num_step_returns = {env.num_envs} × {num_steps} = {least}, "
            "or no n-step return is ever whole"
        )
        yield Problem("agent.memory.max_size", message, memory.max_size)


def _newest_steps_leave_room(blocks: Blocks) -> Iterator[Problem]:
    memory, env = blocks.memory, blocks.env
    if not isinstance(memory, ReplaySpec) or env is None or not memory.use_cer:
        return
    if memory.batch_size <= env.num_envs:
        message = (
            f"must be > env.num_envs = {env.num_envs} with use_cer: the newest step of every "
            "environment is part of each batch, and would fill it"
        )
        yield Problem("agent.memory.batch_size", message, memory.batch_size)


def _update_to_data_is_exact(blocks: Blocks) -> Iterator[Problem]:
    algorithm = blocks.algorithm
    if not isinstance(algorithm, ReplayLearningSpec) or algorithm.update_to_data is None:
        return
    given = {
        "training_iter": algorithm.training_iter,
        "training_batch_iter": algorithm.training_batch_iter,
    }
    for key, value in given.items():
        if value != 1:
            message = "must be 1 with update_to_data, which sets the number of gradient steps alone"
            yield Problem(f"agent.algorithm.{key}", message, value)


REPLAY_CHECKS = (
    _learning_begins,
    _update_to_data_is_exact,
    _replay_holds_the_steps_of_a_return,
    _newest_steps_leave_room,
)
