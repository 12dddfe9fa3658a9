"""Checks an algorithm against its action space, memory, mode and ranks."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from slm_lab.core.errors import Problem
from slm_lab.core.registry import MEMORIES
from slm_lab.spec.blocks import Blocks, Check, findings
from slm_lab.spec.checks.nets import NET_CHECKS, check_batch_norm
from slm_lab.spec.scale import divided, shares
from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.algorithm import CONTINUOUS, DISCRETE, AlgorithmSpec
from slm_lab.spec.schema.block import REFUSING
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.meta import ACTORS
from slm_lab.spec.schema.rules import known

ActionKind: TypeAlias = Literal[
    "discrete", "box", "multi_discrete", "multi_binary", "mixed"
]
"""The kind of an action space; a mixed one is a Tuple or Dict of parts."""

PDTYPES_OF_SPACE: dict[ActionKind, frozenset[str]] = {
    "discrete": DISCRETE,
    "box": CONTINUOUS | {"Deterministic"},
    "multi_discrete": frozenset({"MultiCategorical"}),
    "multi_binary": frozenset({"Bernoulli"}),
    "mixed": frozenset({"Product"}),
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
    pdtype = algorithm.action_pdtype
    fitting = PDTYPES_OF_SPACE[space]
    if algorithm.PDTYPES is not None:
        fitting &= algorithm.PDTYPES
    in_words = f"a {space.replace('_', '-')} action space"
    if not fitting:
        message = f"{algorithm.name} cannot act in {in_words}"
        if algorithm.PDTYPES is not None:
            message += f"; it is for {_spaces_of(algorithm.PDTYPES)} ones"
        return [Problem("agent.algorithm.name", message, algorithm.name)]
    if pdtype != "default" and pdtype not in fitting:
        message = (
            f"does not fit {in_words}; use default or {', '.join(sorted(fitting))}"
        )
        return [Problem("agent.algorithm.action_pdtype", message, pdtype)]
    if algorithm.explores_choices and space != "discrete":
        message = f"chooses one of n actions, not in {in_words}; use default or random"
        return [
            Problem("agent.algorithm.action_policy", message, algorithm.action_policy)
        ]
    return [
        *_check_entropy_penalty(algorithm, space),
        *_check_mean_noise(algorithm, space),
        *_check_bounds(algorithm, has_low, has_high),
    ]


def _spaces_of(pdtypes: Collection[str]) -> str:
    """The action spaces that distributions are for."""
    kinds = [kind for kind, names in PDTYPES_OF_SPACE.items() if names & set(pdtypes)]
    return " and ".join(kind.replace("_", "-") for kind in kinds)


def _check_entropy_penalty(
    algorithm: AlgorithmSpec, space: ActionKind
) -> Iterator[Problem]:
    # The entropy of continuous actions is estimated from one sample. Its square would
    # also penalise the variance of this estimate.
    penalty = algorithm.greatest_entropy_penalty
    if penalty > 0 and space != "discrete":
        message = (
            "is for discrete actions, and the environment's are continuous; remove it"
        )
        path = "agent.algorithm.entropy_penalty_coef"
        yield Problem(path, message, penalty)


def _check_mean_noise(algorithm: AlgorithmSpec, space: ActionKind) -> Iterator[Problem]:
    if algorithm.mean_noise > 0 and space != "box":
        message = f"is for continuous actions, not for {space.replace('_', '-')} ones"
        path = "agent.algorithm.rpo_alpha"
        yield Problem(path, f"{message}; remove it", algorithm.mean_noise)


def _check_bounds(
    algorithm: AlgorithmSpec, has_low: bool, has_high: bool
) -> Iterator[Problem]:
    """Rejects settings that need action bounds if the environment has none."""
    pdtype = algorithm.action_pdtype
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
    if algorithm.action_policy == "random" and not has_both:
        message = (
            "samples between bounds, but the environment's actions have none; use "
            "default"
        )
        yield Problem("agent.algorithm.action_policy", message, algorithm.action_policy)


def contradictions(blocks: Blocks) -> list[Problem]:
    """All contradictions between blocks, in the order of the file."""
    return findings(blocks, REFUSING, CONTRADICTIONS)


def _check_pdtype(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    pdtype = algorithm.action_pdtype
    if algorithm.PDTYPES is not None and pdtype not in algorithm.PDTYPES:
        usable = _usable_pdtypes(algorithm.PDTYPES, pdtype)
        message = f"{algorithm.name} cannot use it; {usable}"
        yield Problem("agent.algorithm.action_pdtype", message, pdtype)


def _check_exploration(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    schedule = known(algorithm.explore_var_spec)
    if algorithm.action_policy != "epsilon_greedy":
        return
    values = {"start_val": schedule.start_val, "end_val": schedule.end_val}
    for key, value in values.items():
        if value is not None and value > 1:
            message = "must be <= 1: it is the probability of epsilon_greedy to explore"
            yield Problem(f"agent.algorithm.explore_var_spec.{key}", message, value)


def _usable_pdtypes(able: frozenset[str], pdtype: str) -> str:
    """The usable distributions for the action spaces of `pdtype`; if none, for all
    spaces."""
    fitting: dict[ActionKind, list[str]] = {}
    for space, names in PDTYPES_OF_SPACE.items():
        if names & able:
            fitting[space] = sorted(names & able)
    same_space = {
        space: names
        for space, names in fitting.items()
        if pdtype in PDTYPES_OF_SPACE[space]
    }
    listed = [
        f"{', '.join(names)} in a {space.replace('_', '-')} action space"
        for space, names in (same_space or fitting).items()
    ]
    return f"use default, or {'; '.join(listed)}"


def _check_memory(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    memory = blocks.memory
    if algorithm.MEMORY is None or "memory" in blocks.malformed:
        return
    models = MEMORIES.models(MemorySpec)
    names = [name for name, model in models.items() if algorithm.learns_from(model)]
    fitting = ", ".join(names)
    if memory is None:
        message = f"is missing: {algorithm.name} learns from {fitting}"
        yield Problem("agent.memory", message)
    elif not algorithm.learns_from(type(memory)):
        message = f"does not suit {algorithm.name}, which learns from {fitting}"
        yield Problem("agent.memory.name", message, memory.name)


def _check_rollout_size(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    if algorithm.ROLLOUT_KEY is None or not blocks.counts_steps:
        return
    frames = algorithm.frames_of_event(known(blocks.env).num_envs, blocks.settings)
    message = bounds.FRAMES_OF_ROLLOUT.refusal(frames)
    if message:
        yield Problem(
            f"agent.algorithm.{algorithm.ROLLOUT_KEY}",
            f"makes {frames:,} frames of one training event, which {message}",
        )
        return
    steps = algorithm.steps_of_rollout(frames)
    message = bounds.STEPS_OF_ROLLOUT.refusal(steps)
    if message:
        yield Problem(
            "agent.algorithm.training_epoch",
            f"makes {steps:,} gradient steps of one training event, which {message}",
            algorithm.model_dump()["training_epoch"],
        )


def _check_memory_of_unrolls(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    memory = known(blocks.memory)
    model = known(algorithm.UNROLLS)
    if not blocks.has_actors or not algorithm.learns_from(type(memory)):
        return
    if isinstance(memory, model):
        return
    steps = ", where training_frequency counts steps"
    if algorithm.replays:
        steps = ""
    message = (
        f'cannot be filled by the actors of distributed "{blocks.settings.mode.word}"'
        ", which send unrolls of a fixed length; use "
        f"{', '.join(MEMORIES.models(model))}{steps}"
    )
    yield Problem("agent.memory.name", message, memory.name)


def _check_unroll_length(blocks: Blocks) -> Iterator[Problem]:
    """Steps that are replayed together must be in one unroll: unrolls of actors
    alternate."""
    algorithm = known(blocks.algorithm)
    meta = known(blocks.meta)
    if not blocks.has_actors or not blocks.has_replay or meta.max_session == 1:
        return
    needed = {"agent.algorithm.num_step_returns": algorithm.steps_of_return}
    if blocks.net is not None:
        needed[f"agent.net.{blocks.net.sequence_key}"] = blocks.net.sequence_length
    unroll_length = meta.actor_learner.unroll_length
    length = blocks.unroll_length
    default = ""
    if unroll_length is None:
        default = f"means {length} steps here, and "
    for key, steps in needed.items():
        if length < steps:
            message = (
                f"{default}must be >= {key} ({steps}): with several actors these "
                "steps must come in one unroll"
            )
            yield Problem(f"{ACTORS}.unroll_length", message, unroll_length)


def _check_correction(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    correction = known(blocks.meta).actor_learner.correction
    if not blocks.has_actors or algorithm.HAS_ADVANTAGES or not correction.corrects:
        return
    message = (
        "corrects the values and the advantages of PPO, VMPO and ActorCritic, and "
        f'{algorithm.name} has none; use "none"'
    )
    yield Problem(f"{ACTORS}.correction", message, correction.name)


CHECKS: tuple[Check, ...] = (
    _check_pdtype,
    _check_exploration,
    _check_memory,
    _check_rollout_size,
    _check_memory_of_unrolls,
    _check_unroll_length,
    _check_correction,
    check_batch_norm,
    *NET_CHECKS,
)


def _check_shares(blocks: Blocks) -> Iterator[Problem]:
    meta = known(blocks.meta)
    count = meta.max_session
    if not meta.mode.has_ranks or count == 1:
        return
    rank = f"each {meta.mode.member} of {meta.mode.word}"
    uneven = False
    for key, size in divided(blocks.algorithm, blocks.memory, meta).items():
        if key.exactly and size % count:
            uneven = True
            message = (
                f"must be a multiple of max_session ({count}): {rank} has its share of "
                f'it with meta.scale "{meta.scale}"'
            )
            yield Problem(f"agent.{key.block}.{key.key}", message, size)
    if not uneven:
        yield from _problems_of_a_share(blocks)


def _problems_of_a_share(blocks: Blocks) -> Iterator[Problem]:
    """Problems that a rank's share has, but the whole spec has not."""
    meta = known(blocks.meta)
    whole = {problem.path: problem for problem in findings(blocks, REFUSING, CHECKS)}
    for problem in findings(blocks_of_a_rank(blocks), REFUSING, CHECKS):
        _, _, key = problem.path.rpartition(".")
        of_share = problem.path.startswith(("agent.algorithm.", "agent.memory."))
        if of_share and problem.path not in whole:
            message = (
                f"each of {meta.max_session} {meta.mode.member}s of {meta.mode.word} "
                f'has {problem.value} of it with meta.scale "{meta.scale}", which '
                f"{problem.message}"
            )
            holder = ".".join(problem.path.split(".")[:2])
            value = getattr(blocks.by_path[holder], key, problem.value)
            yield Problem(problem.path, message, value)


def blocks_of_a_rank(blocks: Blocks) -> Blocks:
    """The blocks with the values of one of several ranks."""
    meta = blocks.settings
    env = blocks.env
    num_envs = None
    if env is not None:
        num_envs = env.num_envs
        frames = -(-env.max_frame // meta.max_session)
        env = env.model_copy(update={"max_frame": frames})
    algorithm, memory = shares(blocks.algorithm, blocks.memory, meta, num_envs)
    return replace(blocks, algorithm=algorithm, memory=memory, env=env)


CONTRADICTIONS = (*CHECKS, _check_shares)
