"""Checks specs of modes with several actors and one learner."""

from collections.abc import Iterable, Iterator

from slm_lab.core.errors import Problem
from slm_lab.core.registry import MEMORIES
from slm_lab.spec.blocks import Blocks, findings
from slm_lab.spec.schema.algorithm import (
    ActorCriticSpec,
    AlgorithmSpec,
    DQNBaseSpec,
    ImitatingSpec,
    OnPolicyLearningSpec,
    PPOSpec,
    RandomSpec,
    ReplayLearningSpec,
)
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import MemorySpec, OnPolicyBatchReplaySpec, ReplaySpec
from slm_lab.spec.schema.meta import ACTORS, MetaSpec
from slm_lab.spec.schema.net import RecurrentNetSpec
from slm_lab.spec.unrolls import frames_of_event, steps_of_unroll


def actor_learner_problems(
    algorithm: AlgorithmSpec, meta: MetaSpec, blocks: Blocks
) -> Iterable[Problem]:
    """All contradictions with the mode, in the order of the file."""
    if not meta.mode.has_learner:
        return []
    return _refused(algorithm, meta) or findings(CHECKS, blocks)


def _refused(algorithm: AlgorithmSpec, meta: MetaSpec) -> list[Problem]:
    """Rejects algorithms that do not learn from unrolls of a fixed length."""
    message, mode = "", f'distributed "{meta.mode.word}"'
    if isinstance(algorithm, ImitatingSpec):
        twin = "PPO" if isinstance(algorithm, PPOSpec) else "ActorCritic"
        message = (
            f"imitates whole past episodes, but the actors of {mode} send unrolls of "
            f"a fixed length; use {twin}"
        )
    elif isinstance(algorithm, RandomSpec):
        message = (
            f"learns nothing, and {mode} is for a learner; set distributed to false"
        )
    elif not isinstance(algorithm, PPOSpec | OnPolicyLearningSpec | ReplayLearningSpec):
        message = (
            f"{mode} does not know what it learns from: the model of its keys, "
            f"{type(algorithm).__name__}, is none of PPOSpec, OnPolicyLearningSpec "
            "and ReplayLearningSpec; derive it from one of them, or set distributed "
            "to false"
        )
    return [Problem("agent.algorithm.name", message, algorithm.name)] if message else []


def _minibatch(algorithm: PPOSpec, env: EnvSpec, meta: MetaSpec) -> Iterator[Problem]:
    frames, queue = (
        frames_of_event(algorithm, env.num_envs, meta),
        meta.actor_learner.learn_queue,
    )
    if algorithm.minibatch_size > frames:
        length = steps_of_unroll(algorithm, meta)
        message = (
            f"must be <= learn_queue × unroll_length × num_envs = {queue} × {length} × "
            f"{env.num_envs} = {frames}, the frames that one training event learns from"
        )
        yield Problem(
            "agent.algorithm.minibatch_size", message, algorithm.minibatch_size
        )


def _memory(
    algorithm: AlgorithmSpec, memory: MemorySpec, meta: MetaSpec
) -> Iterator[Problem]:
    replays = isinstance(algorithm, ReplayLearningSpec)
    model = ReplaySpec if replays else OnPolicyBatchReplaySpec
    if isinstance(memory, model) or not algorithm.learns_from(type(memory)):
        return
    steps = "" if replays else ", where training_frequency counts steps"
    message = (
        f'cannot be filled by the actors of distributed "{meta.mode.word}", which '
        "send unrolls of "
        f"a fixed length; use {', '.join(MEMORIES.models(model))}{steps}"
    )
    yield Problem("agent.memory.name", message, memory.name)


def _replayed_steps(
    algorithm: AlgorithmSpec, memory: ReplaySpec, meta: MetaSpec, blocks: Blocks
) -> Iterator[Problem]:
    """Steps that are replayed together must be in one unroll: unrolls of actors
    alternate."""
    if meta.max_session == 1:
        return
    needed = {}
    if isinstance(blocks.net, RecurrentNetSpec):
        needed["agent.net.seq_len"] = blocks.net.seq_len
    if isinstance(algorithm, DQNBaseSpec):
        needed["agent.algorithm.num_step_returns"] = algorithm.num_step_returns
    length, given = steps_of_unroll(algorithm, meta), meta.actor_learner.unroll_length
    for key, steps in needed.items():
        if length < steps:
            default = f"means {length} steps here, and " if given is None else ""
            message = (
                f"{default}must be >= {key} ({steps}): with several actors these "
                "steps must come in one unroll"
            )
            yield Problem(f"{ACTORS}.unroll_length", message, given)


def _correction(algorithm: AlgorithmSpec, meta: MetaSpec) -> Iterator[Problem]:
    name = meta.actor_learner.correction.name
    if name != "none" and not isinstance(algorithm, PPOSpec | ActorCriticSpec):
        message = (
            "corrects the values and the advantages of PPO and ActorCritic, and "
            f'{algorithm.name} has none; use "none"'
        )
        yield Problem(f"{ACTORS}.correction", message, name)


def _inference(meta: MetaSpec, blocks: Blocks) -> Iterator[Problem]:
    settings = meta.actor_learner
    nets = [net for net in blocks.nets.values() if isinstance(net, RecurrentNetSpec)]
    if settings.inference == "learner" and not settings.serial and nets:
        message = (
            "computes actions from observations alone, and the state of a "
            f"{nets[0].type} stays "
            'with each actor; use "local"'
        )
        yield Problem(f"{ACTORS}.inference", message, settings.inference)


def _cluster(meta: MetaSpec) -> Iterator[Problem]:
    settings = meta.actor_learner
    if meta.cluster is None:
        return
    if settings.serial:
        message = (
            "makes the actors take turns with the learner in one process, which needs "
            "no nodes of meta.cluster; remove one of the two"
        )
        yield Problem(f"{ACTORS}.serial", message, settings.serial)
    elif settings.inference == "learner":
        message = (
            "makes each step wait for the learner, which is too slow from a node of "
            "meta.cluster; "
            'use "local"'
        )
        yield Problem(f"{ACTORS}.inference", message, settings.inference)


CHECKS = (_minibatch, _memory, _replayed_steps, _correction, _inference, _cluster)
