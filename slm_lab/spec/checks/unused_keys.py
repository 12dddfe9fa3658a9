"""Valid keys that have no effect in this spec; reported as warnings.

Values equal to the default are not reported, because a spec with all defaults written out has
dozens of them.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from slm_lab.spec.blocks import Blocks
from slm_lab.spec.modes import MODES
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
"""Action distributions without an initial standard deviation."""

KEYS_OF_RATIO = ("training_frequency", "update_to_data", "training_batch_iter", "training_iter")
"""Keys of how much a replay algorithm learns; the last one counts steps per batch."""

Note: TypeAlias = tuple[str, str]
"""A path of the spec, and why its value has no effect."""


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
    if not env.normalize_obs and _is_set(env, "clip_obs"):
        yield "env.clip_obs", "bounds normalised observations, but normalize_obs is false"
    if env.frame_op is None and _is_set(env, "frame_op_len"):
        yield "env.frame_op_len", "counts stacked observations, but frame_op is null"
    if env.backend == "envpool" and env.vectorization_mode in ("sync", "async"):
        mode = env.vectorization_mode
        yield "env.backend", f'vectorization_mode "{mode}" steps single environments of Gymnasium'


def _ranks(blocks: Blocks) -> Iterator[Note]:
    meta = blocks.meta
    if meta is None:
        return
    for key in ("scale", "scale_lr"):
        if not meta.mode.in_step and _is_set(meta, key):
            yield f"meta.{key}", "divides a spec among the ranks of all_reduce"
    if meta.mode.in_step and meta.scale == "strong" and _is_set(meta, "scale_lr"):
        yield "meta.scale_lr", 'scale "strong" leaves the learning rate as it is'


def _blocks_of_modes(blocks: Blocks) -> Iterator[Note]:
    """Keys of `meta.<word>` if `distributed` names another mode."""
    meta = blocks.meta
    if meta is None:
        return
    for word in MODES.names():
        settings = getattr(meta, word, None)
        if isinstance(settings, Block) and meta.distributed != word:
            reason = f'distributed is not "{word}"'
            keys = [key for key in type(settings).model_fields if _is_set(settings, key)]
            yield from ((f"meta.{word}.{key}", reason) for key in keys)


def _actors_and_learner(blocks: Blocks) -> Iterator[Note]:
    meta, path = blocks.meta, "meta.actor_learner"
    if meta is None or not meta.mode.has_learner:
        return
    settings = meta.actor_learner
    keys = [key for key in ActorLearnerSpec.model_fields if _is_set(settings, key)]
    for key in keys:
        if reason := _no_actor(blocks.algorithm, settings, key):
            yield f"{path}.{key}", reason
    if settings.correction.name == "none":
        for key in ("rho_bar", "c_bar"):
            if _is_set(settings.correction, key):
                yield f"{path}.correction.{key}", 'bounds a correction, but that is "none"'


def _learner(blocks: Blocks) -> Iterator[Note]:
    """Keys of a replay algorithm that `train_ratio` of the learner replaces."""
    algorithm, meta = blocks.algorithm, blocks.meta
    if meta is None or not meta.mode.has_learner:
        return
    ratio = meta.actor_learner.train_ratio
    if not isinstance(algorithm, ReplayLearningSpec) or ratio == "spec":
        return
    keys = KEYS_OF_RATIO[:3] if ratio is None else KEYS_OF_RATIO
    for key in keys:
        if _is_set(algorithm, key):
            yield (
                f"agent.algorithm.{key}",
                "meta.actor_learner.train_ratio sets the number of gradient steps",
            )


def _no_actor(algorithm: AlgorithmSpec | None, settings: ActorLearnerSpec, key: str) -> str:
    """Why a key of actors and learner has no effect; "" if it has one."""
    if key in ("queue_size", "inference") and settings.serial:
        return "with serial, actors and learner take turns in one process"
    if algorithm is None:
        return ""
    replays = isinstance(algorithm, ReplayLearningSpec)
    if key == "train_ratio" and not replays:
        return f"{algorithm.name} learns from every unroll once, and replays nothing"
    if key == "learn_queue" and replays:
        return f"{algorithm.name} stores every unroll in its replay memory"
    return ""


def _scale_of_actions(blocks: Blocks) -> Iterator[Note]:
    """`log_std_init` for actions without σ.

    If this depends on the action space, `agent.net.build` warns when it builds the net.
    """
    algorithm = blocks.algorithm
    if algorithm is None:
        return
    reason = ""
    if isinstance(algorithm, DQNBaseSpec | SARSASpec):
        reason = f"{algorithm.name} takes the action of the greatest Q"
    elif algorithm.action_pdtype in WITHOUT_SIGMA:
        reason = f"{algorithm.action_pdtype} has no σ"
    if reason and blocks.net is not None:
        for key in _set_keys(blocks.net, ("log_std_init",)):
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
        return  # `_learner` reports the key
    if _is_set(algorithm, "training_frequency"):
        yield "agent.algorithm.training_frequency", "update_to_data sets when to train"


def _bounds_of_alpha(blocks: Blocks) -> Iterator[Note]:
    algorithm = blocks.algorithm
    if not isinstance(algorithm, EntropyRegularisedSpec) or algorithm.fixed_alpha is None:
        return
    for key in ("log_alpha_min", "log_alpha_max"):
        if _is_set(algorithm, key):
            yield f"agent.algorithm.{key}", "bounds a tuned α, but fixed_alpha is set"


def _one_net(blocks: Blocks) -> Iterator[Note]:
    algorithm, net = blocks.algorithm, blocks.net
    if algorithm is None or net is None or algorithm.CRITIC != "none":
        return
    reason = f"{algorithm.name} has one net and no critic"
    own = [key for key in ("shared", "use_same_optim") if _is_set(net, key)]
    of_critic = [f"critic_{key}" for key in net.role_keys("critic") if key not in TARGET_KEYS]
    for key in (*own, *of_critic):
        yield f"agent.net.{key}", reason


def _no_norm(blocks: Blocks) -> Iterator[Note]:
    if isinstance(blocks.algorithm, CrossQSpec):
        return  # CrossQ always normalises
    for path, net in (("agent.net", blocks.net), ("agent.critic_net", blocks.critic_net)):
        if net is None or any(_set_keys(net, ("batch_norm", "layer_norm"))):
            continue
        for key in _set_keys(net, ("norm_place",)):
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
        for key in _set_keys(net, TARGET_KEYS):
            reason = _unused(algorithm, blocks, net, key)
            if reason:
                yield f"{path}.{key}", reason


def _unused(algorithm: AlgorithmSpec, blocks: Blocks, net: NetSpec, key: str) -> str:
    """Why a key of target networks has no effect; "" if it has one."""
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


def _is_set(block: Block, key: str) -> bool:
    """Whether the value of a key differs from the default."""
    differs: bool = getattr(block, key) != type(block).model_fields[key].default
    return differs


def _set_keys(net: NetSpec, keys: Sequence[str]) -> Iterator[str]:
    """The `keys` that differ from the default, and their variants for one role."""
    for key in keys:
        if _is_set(net, key):
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
    _blocks_of_modes,
    _actors_and_learner,
    _learner,
)
