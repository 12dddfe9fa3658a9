"""Checks the blocks of a spec against each other: algorithm, memory, nets, optimizers,
modes.

The other modules of this package hold the checks of one subject: `nets`, `recurrent`,
`replay`, `actor_learner` and `size`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from slm_lab.core.errors import Problem
from slm_lab.core.registry import MEMORIES
from slm_lab.spec.blocks import Blocks, Check, findings
from slm_lab.spec.checks.actor_learner import actor_learner_problems
from slm_lab.spec.checks.nets import NET_CHECKS, batch_norm_problems
from slm_lab.spec.checks.recurrent import RECURRENT_CHECKS
from slm_lab.spec.checks.replay import REPLAY_CHECKS
from slm_lab.spec.checks.size import SIZE_CHECKS
from slm_lab.spec.modes import words_of
from slm_lab.spec.scale import divided, shares
from slm_lab.spec.schema.algorithm import (
    CONTINUOUS,
    DISCRETE,
    EXPLORING,
    IMITATING,
    AlgorithmSpec,
    EntropyRegularisedSpec,
    PPOSpec,
)
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import MemorySpec, OnPolicySpec, ReplaySpec
from slm_lab.spec.schema.meta import MetaSpec

ActionKind: TypeAlias = Literal["discrete", "box", "multi_discrete", "multi_binary"]

PDTYPES_OF_SPACE: dict[ActionKind, frozenset[str]] = {
    "discrete": DISCRETE,
    "box": CONTINUOUS,
    "multi_discrete": frozenset({"MultiCategorical"}),
    "multi_binary": frozenset({"Bernoulli"}),
}


def action_space_problems(
    algorithm: AlgorithmSpec,
    space: ActionKind,
    has_low: bool = True,
    has_high: bool = True,
) -> list[Problem]:
    """Problems of the algorithm with an action space, once the space is known.
    `has_low` and `has_high`: whether a Box is bounded below and above in every
    component."""
    pdtype, policy, able = (
        algorithm.action_pdtype,
        algorithm.action_policy,
        algorithm.PDTYPES,
    )
    fitting = (
        PDTYPES_OF_SPACE[space] if able is None else PDTYPES_OF_SPACE[space] & able
    )
    in_words = f"a {space.replace('_', '-')} action space"
    if not fitting:
        message = f"{algorithm.name} cannot act in {in_words}"
        return [Problem("agent.algorithm.name", message, algorithm.name)]
    if pdtype != "default" and pdtype not in fitting:
        message = (
            f"does not fit {in_words}; use default or {', '.join(sorted(fitting))}"
        )
        return [Problem("agent.algorithm.action_pdtype", message, pdtype)]
    if policy in EXPLORING and space != "discrete":
        message = f"chooses one of n actions, not in {in_words}; use default or random"
        return [Problem("agent.algorithm.action_policy", message, policy)]
    return [
        *_of_discrete_actions(algorithm, space),
        *_missing_bounds(algorithm, has_low, has_high),
    ]


def _of_discrete_actions(
    algorithm: AlgorithmSpec, space: ActionKind
) -> Iterator[Problem]:
    if not isinstance(algorithm, EntropyRegularisedSpec) or space == "discrete":
        return
    if algorithm.entropy_penalty_coef > 0:
        # The entropy of continuous actions is estimated from one sample. Its square
        # would also penalise the variance of this estimate.
        message = (
            "is for discrete actions, and the environment's are continuous; remove it"
        )
        key = "agent.algorithm.entropy_penalty_coef"
        yield Problem(key, message, algorithm.entropy_penalty_coef)


def _missing_bounds(
    algorithm: AlgorithmSpec, has_low: bool, has_high: bool
) -> Iterator[Problem]:
    """Rejects settings that need action bounds if the environment has none."""
    pdtype, policy = algorithm.action_pdtype, algorithm.action_policy
    has_both = has_low and has_high
    if algorithm.NEEDS_BOUNDS and not has_both:
        message = (
            f"{algorithm.name} needs bounded actions, but the environment's have no "
            "bounds"
        )
        yield Problem("agent.algorithm.name", message, algorithm.name)
    if (pdtype in ("Beta", "LogNormal") and not has_low) or (
        pdtype == "Beta" and not has_high
    ):
        message = "needs bounds that the environment's actions do not have; use Normal"
        yield Problem("agent.algorithm.action_pdtype", message, pdtype)
    if policy == "random" and not has_both:
        message = (
            "samples between bounds, but the environment's actions have none; use "
            "default"
        )
        yield Problem("agent.algorithm.action_policy", message, policy)


def _actions_fit(algorithm: AlgorithmSpec) -> Iterator[Problem]:
    pdtype, policy = algorithm.action_pdtype, algorithm.action_policy
    if algorithm.PDTYPES is not None and pdtype not in algorithm.PDTYPES:
        message = (
            f"{algorithm.name} cannot use it; "
            f"{_usable_pdtypes(algorithm.PDTYPES, pdtype)}"
        )
        yield Problem("agent.algorithm.action_pdtype", message, pdtype)
    if policy not in EXPLORING:
        return
    if pdtype != "default" and pdtype not in DISCRETE:
        message = f"is for discrete actions, but action_pdtype is {pdtype}"
        yield Problem("agent.algorithm.action_policy", message, policy)
    schedule, path = algorithm.explore_var_spec, "agent.algorithm.explore_var_spec"
    if schedule is None:
        yield Problem(path, f"is missing: {policy} needs it")
    elif policy == "epsilon_greedy":
        for key, value in (
            ("start_val", schedule.start_val),
            ("end_val", schedule.end_val),
        ):
            if value is not None and value > 1:
                message = (
                    "must be <= 1: it is the probability of epsilon_greedy to explore"
                )
                yield Problem(f"{path}.{key}", message, value)


def _usable_pdtypes(able: frozenset[str], given: str) -> str:
    """The usable distributions for the action spaces of `given`; if none, for all
    spaces."""
    fitting = {space: sorted(names & able) for space, names in PDTYPES_OF_SPACE.items()}
    of_given = {
        s: names
        for s, names in fitting.items()
        if given in PDTYPES_OF_SPACE[s] and names
    }
    listed = [
        f"{', '.join(names)} in a {space.replace('_', '-')} action space"
        for space, names in (of_given or fitting).items()
        if names
    ]
    return f"use default, or {'; '.join(listed)}"


def _rollout_holds_a_minibatch(
    algorithm: PPOSpec, env: EnvSpec, blocks: Blocks
) -> Iterator[Problem]:
    meta = blocks.meta
    if "meta" in blocks.malformed or (meta is not None and meta.mode.has_learner):
        return  # it may learn from unrolls, see `actor_learner_problems`
    rollout = algorithm.time_horizon * env.num_envs
    if algorithm.minibatch_size > rollout:
        message = (
            f"must be <= time_horizon × num_envs = {algorithm.time_horizon} × "
            f"{env.num_envs} = {rollout}, the frames of one rollout"
        )
        yield Problem(
            "agent.algorithm.minibatch_size", message, algorithm.minibatch_size
        )


def _ranks_have_their_share(meta: MetaSpec, blocks: Blocks) -> Iterator[Problem]:
    algorithm, memory, env = blocks.algorithm, blocks.memory, blocks.env
    if not meta.mode.has_ranks or meta.max_session == 1:
        return
    count, given = meta.max_session, divided(algorithm, memory, meta)
    rank = f"each {meta.mode.member} of {meta.mode.word}"
    uneven = {
        each: size for each, size in given.items() if each.exactly and size % count
    }
    for each, value in uneven.items():
        message = (
            f"must be a multiple of max_session ({count}): {rank} has its share of it "
            "with "
            f'meta.scale "{meta.scale}"'
        )
        yield Problem(f"agent.{each.block}.{each.key}", message, value)
    if uneven or any(findings([_rollout_holds_a_minibatch], blocks)):
        return
    own, own_memory = shares(
        algorithm, memory, meta, None if env is None else env.num_envs
    )
    if (
        isinstance(own_memory, ReplaySpec)
        and own_memory.max_size < own_memory.batch_size
    ):
        least = f"{count} × batch_size ({own_memory.batch_size})"
        message = f"must be >= {least}: {rank} has its share of it"
        size = memory.max_size if isinstance(memory, ReplaySpec) else None
        yield Problem("agent.memory.max_size", message, size)
        return
    if env is not None:
        env = env.model_copy(update={"max_frame": -(-env.max_frame // count)})
    yield from _of_shares(
        blocks, replace(blocks, algorithm=own, memory=own_memory, env=env), meta
    )


def _of_shares(blocks: Blocks, of_rank: Blocks, meta: MetaSpec) -> Iterator[Problem]:
    """Problems that a rank's share has, but the whole spec has not."""
    member, word = meta.mode.member, meta.mode.word
    reported = {problem.path for problem in findings(OF_SHARES, blocks)}
    for problem in findings(OF_SHARES, of_rank):
        if problem.path not in reported:
            message = (
                f"each of {meta.max_session} {member}s of {word} has {problem.value} "
                "of it with "
                f'meta.scale "{meta.scale}", which {problem.message}'
            )
            _, block, key = problem.path.split(".")
            value = getattr(getattr(blocks, block), key, problem.value)
            yield Problem(problem.path, message, value)


def _memory_fits(algorithm: AlgorithmSpec, blocks: Blocks) -> Iterator[Problem]:
    memory = blocks.memory
    if algorithm.MEMORY is None or "memory" in blocks.malformed:
        return
    models = MEMORIES.models(MemorySpec)
    fitting = ", ".join(
        name for name, model in models.items() if algorithm.learns_from(model)
    )
    if memory is None:
        yield Problem(
            "agent.memory", f"is missing: {algorithm.name} learns from {fitting}"
        )
    elif not algorithm.learns_from(type(memory)):
        message = f"does not suit {algorithm.name}, which learns from {fitting}"
        yield Problem("agent.memory.name", message, memory.name)


def _imitation_has_its_memory(
    algorithm: AlgorithmSpec, memory: OnPolicySpec
) -> Iterator[Problem]:
    if algorithm.name not in IMITATING:
        return
    for key in ("sil_replay_name", "batch_size", "max_size"):
        if getattr(memory, key) is None:
            message = f"is missing: {algorithm.name} has a replay memory"
            yield Problem(f"agent.memory.{key}", message)
    size, batch = memory.max_size, memory.batch_size
    if size is not None and batch is not None and size < batch:
        yield Problem("agent.memory.max_size", f"must be >= batch_size ({batch})", size)


def _runs_are_of_a_distributed_training(meta: MetaSpec) -> Iterator[Problem]:
    if meta.max_run > 1 and meta.distributed is False:
        message = (
            "repeats a distributed training; with distributed false set max_session "
            "instead"
        )
        yield Problem("meta.max_run", message, meta.max_run)


OF_SHARES: tuple[Check, ...] = (
    _imitation_has_its_memory,
    *REPLAY_CHECKS,
    *RECURRENT_CHECKS,
    batch_norm_problems,
)
"""The checks of keys that ranks divide."""


def _a_cluster_has_no_common_memory(meta: MetaSpec) -> Iterator[Problem]:
    if meta.cluster is not None and meta.mode.cluster_launch is None:
        able = ", ".join(words_of(lambda mode: mode.cluster_launch))
        message = (
            f"is for {able} and independent Sessions; the {meta.mode.member}s of "
            "distributed "
            f'"{meta.mode.word}" share the memory of one machine'
        )
        yield Problem("meta.cluster", message, meta.cluster)


CONTRADICTIONS: tuple[Check, ...] = (
    _actions_fit,
    _rollout_holds_a_minibatch,
    _ranks_have_their_share,
    _memory_fits,
    _imitation_has_its_memory,
    *REPLAY_CHECKS,
    *NET_CHECKS,
    *RECURRENT_CHECKS,
    actor_learner_problems,
    *SIZE_CHECKS,
    _runs_are_of_a_distributed_training,
    _a_cluster_has_no_common_memory,
)
"""All contradictions between blocks, in the order of the file."""
