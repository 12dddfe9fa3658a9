"""Keys that are right as they stand, and change nothing: told, never silent.

A value that equals the default asks for nothing and is not told: a spec with every default written
out has such keys by the dozen.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from slm_lab.spec.blocks import Blocks
from slm_lab.spec.role import targets_role
from slm_lab.spec.schema.algorithm import (
    DISCRETE,
    EXPLORING,
    AlgorithmSpec,
    CrossQSpec,
    DQNBaseSpec,
    EntropyRegularisedSpec,
    RandomSpec,
    ReplayLearningSpec,
    SARSASpec,
)
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.meta import ActorLearnerSpec
from slm_lab.spec.schema.net import ROLES, TARGET_KEYS, NetSpec

WITHOUT_SIGMA = DISCRETE | {"MultiCategorical", "Bernoulli", "Beta"}
"""Distributions of actions that have no deviation to begin with."""

KEYS_OF_RATIO = ("training_frequency", "update_to_data", "training_batch_iter", "training_iter")
"""How much an algorithm that replays learns; last what it makes of a batch."""

Note: TypeAlias = tuple[str, str]
"""A path of the spec, and why what stands there changes nothing."""


def without_effect(blocks: Blocks) -> list[str]:
    """One "path (reason)" per key."""
    return [f"{path} ({reason})" for check in CHECKS for path, reason in check(blocks)]


def _exploration(blocks: Blocks) -> Iterator[Note]:
    algorithm = blocks.algorithm
    if algorithm is None or algorithm.explore_var_spec is None:
        return
    if algorithm.action_policy not in EXPLORING:
        reason = f'action_policy "{algorithm.action_policy}" has no exploration variable'
        yield "agent.algorithm.explore_var_spec", reason


def _environment(blocks: Blocks) -> Iterator[Note]:
    env = blocks.env
    if env is None:
        return
    if not env.normalize_obs and _asks(env, "clip_obs"):
        yield "env.clip_obs", "bounds normalised observations, and normalize_obs is false"
    if env.frame_op is None and _asks(env, "frame_op_len"):
        yield "env.frame_op_len", "counts observations that are joined, and frame_op is null"
    if env.backend == "envpool" and env.vectorization_mode in ("sync", "async"):
        mode = env.vectorization_mode
        yield "env.backend", f'vectorization_mode "{mode}" steps single environments of Gymnasium'


def _ranks(blocks: Blocks) -> Iterator[Note]:
    meta = blocks.meta
    if meta is None:
        return
    for key in ("scale", "scale_lr"):
        if meta.distributed != "all_reduce" and _asks(meta, key):
            yield f"meta.{key}", "divides a spec among the ranks of all_reduce"
    if meta.distributed == "all_reduce" and meta.scale == "strong" and _asks(meta, "scale_lr"):
        yield "meta.scale_lr", 'scale "strong" leaves the learning rate as it is'


def _actors_and_learner(blocks: Blocks) -> Iterator[Note]:
    meta, path = blocks.meta, "meta.actor_learner"
    if meta is None:
        return
    settings = meta.actor_learner
    asked = [key for key in ActorLearnerSpec.model_fields if _asks(settings, key)]
    if meta.distributed != "actor_learner":
        reason = 'distributed is another word than "actor_learner"'
        yield from ((f"{path}.{key}", reason) for key in asked)
        return
    for key in asked:
        if reason := _no_actor(blocks.algorithm, settings, key):
            yield f"{path}.{key}", reason
    if settings.correction.name == "none":
        for key in ("rho_bar", "c_bar"):
            if _asks(settings.correction, key):
                yield f"{path}.correction.{key}", 'bounds a correction, and that is "none"'


def _learner(blocks: Blocks) -> Iterator[Note]:
    """What the learner of actors does not ask an algorithm that replays."""
    algorithm, meta = blocks.algorithm, blocks.meta
    if meta is None or meta.distributed != "actor_learner":
        return
    ratio = meta.actor_learner.train_ratio
    if not isinstance(algorithm, ReplayLearningSpec) or ratio == "spec":
        return
    keys = KEYS_OF_RATIO[:3] if ratio is None else KEYS_OF_RATIO
    for key in keys:
        if _asks(algorithm, key):
            yield (
                f"agent.algorithm.{key}",
                "meta.actor_learner.train_ratio says how much is learned",
            )


def _no_actor(algorithm: AlgorithmSpec | None, settings: ActorLearnerSpec, key: str) -> str:
    """Why a key of actors and learner changes nothing; "" where it does."""
    if key in ("queue_size", "inference") and settings.serial:
        return "with serial nobody waits: actors and learner take turns in one process"
    if algorithm is None:
        return ""
    replays = isinstance(algorithm, ReplayLearningSpec)
    if key == "train_ratio" and not replays:
        return f"{algorithm.name} learns from every unroll once, and replays nothing"
    if key == "learn_queue" and replays:
        return f"{algorithm.name} replays, and every unroll goes into its memory"
    return ""


def _scale_of_actions(blocks: Blocks) -> Iterator[Note]:
    """ln σ where actions have none; what only the environment knows is told when it is made."""
    algorithm = blocks.algorithm
    if algorithm is None:
        return
    reason = ""
    if isinstance(algorithm, DQNBaseSpec | SARSASpec):
        reason = f"{algorithm.name} takes the action of the greatest Q"
    elif algorithm.action_pdtype in WITHOUT_SIGMA:
        reason = f"{algorithm.action_pdtype} has no σ"
    if reason and blocks.net is not None:
        for key in _asked_of(blocks.net, ("log_std_init",)):
            yield f"agent.net.{key}", reason


def _nothing_to_learn(blocks: Blocks) -> Iterator[Note]:
    if not isinstance(blocks.algorithm, RandomSpec):
        return
    parts = {"memory": blocks.memory, "net": blocks.net, "critic_net": blocks.critic_net}
    for key, part in parts.items():
        if part is not None:
            yield f"agent.{key}", f"{blocks.algorithm.name} learns nothing"


def _ratio(blocks: Blocks) -> Iterator[Note]:
    algorithm = blocks.algorithm
    if not isinstance(algorithm, ReplayLearningSpec) or algorithm.update_to_data is None:
        return
    if any(_learner(blocks)):
        return  # which tells the ratio itself
    if _asks(algorithm, "training_frequency"):
        yield "agent.algorithm.training_frequency", "update_to_data says when there is training"


def _bounds_of_alpha(blocks: Blocks) -> Iterator[Note]:
    algorithm = blocks.algorithm
    if not isinstance(algorithm, EntropyRegularisedSpec) or algorithm.fixed_alpha is None:
        return
    for key in ("log_alpha_min", "log_alpha_max"):
        if _asks(algorithm, key):
            yield f"agent.algorithm.{key}", "bounds an α that is tuned, and fixed_alpha sets it"


def _one_net(blocks: Blocks) -> Iterator[Note]:
    algorithm, net = blocks.algorithm, blocks.net
    if algorithm is None or net is None or algorithm.CRITIC != "none":
        return
    reason = f"{algorithm.name} has one net and no critic"
    own = [key for key in ("shared", "use_same_optim") if _asks(net, key)]
    of_critic = [f"critic_{key}" for key in net.role_keys("critic") if key not in TARGET_KEYS]
    for key in (*own, *of_critic):
        yield f"agent.net.{key}", reason


def _no_norm(blocks: Blocks) -> Iterator[Note]:
    if isinstance(blocks.algorithm, CrossQSpec):
        return  # which normalises whatever its nets say
    for path, net in (("agent.net", blocks.net), ("agent.critic_net", blocks.critic_net)):
        if net is None or any(_asked_of(net, ("batch_norm", "layer_norm"))):
            continue
        for key in _asked_of(net, ("norm_place",)):
            yield f"{path}.{key}", "the net has neither batch_norm nor layer_norm"


def _one_optimizer(blocks: Blocks) -> Iterator[Note]:
    net = blocks.net
    if blocks.critic_net is not None and net is not None and net.use_same_optim:
        yield "agent.net.use_same_optim", "agent.critic_net has its own optimizer"


def _targets(blocks: Blocks) -> Iterator[Note]:
    algorithm = blocks.algorithm
    if algorithm is None or algorithm.HAS_TARGETS is None:
        return
    for path, net in (("agent.net", blocks.net), ("agent.critic_net", blocks.critic_net)):
        if net is None:
            continue
        for key in _asked_of(net, TARGET_KEYS):
            reason = _unused(algorithm, blocks, net, key)
            if reason:
                yield f"{path}.{key}", reason


def _unused(algorithm: AlgorithmSpec, blocks: Blocks, net: NetSpec, key: str) -> str:
    """Why a key of target networks changes nothing; "" where it does."""
    if not algorithm.HAS_TARGETS:
        return f"{algorithm.name} has no target networks"
    role = targets_role(algorithm)
    if role == "critic" and net is blocks.net and blocks.critic_net is not None:
        return "target networks follow the nets of agent.critic_net"
    if any(key.startswith(f"{other}_") for other in ROLES if other != role):
        return f"target networks of {algorithm.name} follow its {role}"
    update_type = net.role_keys(role).get("update_type", net.update_type)
    if key.endswith("polyak_coef") and update_type == "replace":
        return 'update_type "replace" copies'
    return ""


def _asks(block: Block, key: str) -> bool:
    """Whether a block has another value than the default."""
    asked: bool = getattr(block, key) != type(block).model_fields[key].default
    return asked


def _asked_of(net: NetSpec, keys: Sequence[str]) -> Iterator[str]:
    """Those of `keys` that ask for something, and their variants for one role."""
    for key in keys:
        if _asks(net, key):
            yield key
        yield from (f"{role}_{key}" for role in ROLES if key in net.role_keys(role))


CHECKS = (
    _exploration,
    _scale_of_actions,
    _nothing_to_learn,
    _ratio,
    _bounds_of_alpha,
    _one_net,
    _no_norm,
    _one_optimizer,
    _targets,
    _environment,
    _ranks,
    _actors_and_learner,
    _learner,
)
