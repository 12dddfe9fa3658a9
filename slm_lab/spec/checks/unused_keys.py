"""Valid keys that have no effect in this spec; reported as warnings.

Values equal to the default are not reported, because a spec with all defaults written
out has dozens of them."""

from collections.abc import Iterable, Iterator, Sequence

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks, findings
from slm_lab.spec.checks.size import multiplies_in_half
from slm_lab.spec.modes import MODES, words_of
from slm_lab.spec.role import optimizer_paths, targets_role
from slm_lab.spec.schema import algorithm as algorithms
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import ReplaySpec
from slm_lab.spec.schema.meta import ACTORS, ActorLearnerSpec, MetaSpec
from slm_lab.spec.schema.net import ROLES, TARGET_KEYS, NetSpec

WITHOUT_SIGMA = algorithms.DISCRETE | {"MultiCategorical", "Bernoulli", "Beta"}
"""Action distributions without an initial standard deviation."""

KEYS_OF_RATIO = (
    "training_frequency",
    "update_to_data",
    "training_batch_iter",
    "training_iter",
)
"""Keys of how much a replay algorithm learns; the last one counts steps per batch."""


def _exploration(algorithm: algorithms.AlgorithmSpec) -> Iterator[Problem]:
    if (
        algorithm.explore_var_spec is not None
        and algorithm.action_policy not in algorithms.EXPLORING
    ):
        reason = (
            f'action_policy "{algorithm.action_policy}" has no exploration variable'
        )
        yield Problem("agent.algorithm.explore_var_spec", reason)


def _environment(env: EnvSpec) -> Iterator[Problem]:
    if not env.normalize_obs:
        reason = "bounds normalised observations, but normalize_obs is false"
        yield from _each_set("env", env, ["clip_obs"], reason)
    if env.frame_op is None:
        reason = "counts stacked observations, but frame_op is null"
        yield from _each_set("env", env, ["frame_op_len"], reason)
    if env.backend == "envpool" and env.vectorization_mode in ("sync", "async"):
        reason = f'"{env.vectorization_mode}" steps single environments of Gymnasium'
        yield Problem("env.backend", f"vectorization_mode {reason}")


def _ranks(meta: MetaSpec) -> Iterator[Problem]:
    if not meta.mode.has_ranks:
        words = ", ".join(words_of(lambda mode: mode.has_ranks))
        reason = f"divides a spec among the ranks of {words}"
        yield from _each_set("meta", meta, ["scale", "scale_lr"], reason)
    elif meta.scale == "strong":
        reason = 'scale "strong" leaves the learning rate as it is'
        yield from _each_set("meta", meta, ["scale_lr"], reason)


def _blocks_of_modes(meta: MetaSpec) -> Iterator[Problem]:
    """Keys of `meta.<word>` if `distributed` names another mode."""
    for word in MODES.names():
        settings = getattr(meta, word, None)
        if isinstance(settings, Block) and meta.distributed != word:
            keys = type(settings).model_fields
            yield from _each_set(
                f"meta.{word}", settings, keys, f'distributed is not "{word}"'
            )


def _actors_and_learner(meta: MetaSpec, blocks: Blocks) -> Iterator[Problem]:
    settings = meta.actor_learner
    if not meta.mode.has_learner:
        return
    for key in ActorLearnerSpec.model_fields:
        if reason := _no_actor(blocks.algorithm, settings, key):
            yield from _each_set(ACTORS, settings, [key], reason)
    if settings.correction.name == "none":
        bounds, reason = ["rho_bar", "c_bar"], 'bounds a correction, but that is "none"'
        yield from _each_set(
            f"{ACTORS}.correction", settings.correction, bounds, reason
        )


def _no_actor(
    algorithm: algorithms.AlgorithmSpec | None, settings: ActorLearnerSpec, key: str
) -> str:
    """Why a key of actors and learner has no effect; "" if it has one."""
    if key in ("queue_size", "inference") and settings.serial:
        return "with serial, actors and learner take turns in one process"
    if algorithm is None:
        return ""
    replays = isinstance(algorithm, algorithms.ReplayLearningSpec)
    if key == "train_ratio" and not replays:
        return f"{algorithm.name} learns from every unroll once, and replays nothing"
    if key == "learn_queue" and replays:
        return f"{algorithm.name} stores every unroll in its replay memory"
    return ""


def _learner(
    algorithm: algorithms.ReplayLearningSpec, meta: MetaSpec
) -> Iterator[Problem]:
    """Keys of a replay algorithm that `train_ratio` of the learner replaces."""
    ratio = meta.actor_learner.train_ratio
    if meta.mode.has_learner and ratio != "spec":
        keys = KEYS_OF_RATIO[:3] if ratio is None else KEYS_OF_RATIO
        reason = f"{ACTORS}.train_ratio sets the number of gradient steps"
        yield from _each_set("agent.algorithm", algorithm, keys, reason)


def _ratio(
    algorithm: algorithms.ReplayLearningSpec, blocks: Blocks
) -> Iterator[Problem]:
    by_learner = any(findings([_learner], blocks))  # it reports the key
    if algorithm.update_to_data is not None and not by_learner:
        reason = "update_to_data sets when to train"
        yield from _each_set(
            "agent.algorithm", algorithm, ["training_frequency"], reason
        )


def _scale_of_actions(
    algorithm: algorithms.AlgorithmSpec, net: NetSpec
) -> Iterator[Problem]:
    """`log_std_init` for actions without σ. If this depends on the action space,
    `agent.from_spec` warns when it builds the net."""
    reason = ""
    if isinstance(algorithm, algorithms.DQNBaseSpec | algorithms.SARSASpec):
        reason = f"{algorithm.name} takes the action of the greatest Q"
    elif algorithm.action_pdtype in WITHOUT_SIGMA:
        reason = f"{algorithm.action_pdtype} has no σ"
    for key in _set_keys(net, ["log_std_init"]) if reason else ():
        yield Problem(f"agent.net.{key}", reason)


def _nothing_to_learn(
    algorithm: algorithms.RandomSpec, blocks: Blocks
) -> Iterator[Problem]:
    paths = [*(["agent.memory"] if blocks.memory is not None else []), *blocks.nets]
    yield from (Problem(path, f"{algorithm.name} learns nothing") for path in paths)


def _bounds_of_alpha(algorithm: algorithms.EntropyRegularisedSpec) -> Iterator[Problem]:
    if algorithm.fixed_alpha is not None:
        keys = ["log_alpha_min", "log_alpha_max"]
        reason = "bounds a tuned α, but fixed_alpha is set"
        yield from _each_set("agent.algorithm", algorithm, keys, reason)


def _one_net(algorithm: algorithms.AlgorithmSpec, net: NetSpec) -> Iterator[Problem]:
    if algorithm.CRITIC != "none":
        return
    reason = f"{algorithm.name} has one net and no critic"
    yield from _each_set("agent.net", net, ["shared", "use_same_optim"], reason)
    for key in net.role_keys("critic"):
        if key not in TARGET_KEYS:
            yield Problem(f"agent.net.critic_{key}", reason)


def _no_norm(blocks: Blocks) -> Iterator[Problem]:
    if isinstance(blocks.algorithm, algorithms.CrossQSpec):
        return  # CrossQ always normalises
    for path, net in blocks.nets.items():
        if not any(_set_keys(net, ["batch_norm", "layer_norm"])):
            for key in _set_keys(net, ["norm_place"]):
                yield Problem(
                    f"{path}.{key}", "the net has neither batch_norm nor layer_norm"
                )


def _both_nets(net: NetSpec, critic_net: NetSpec) -> Iterator[Problem]:
    if net.use_same_optim:
        yield Problem(
            "agent.net.use_same_optim", "agent.critic_net has its own optimizer"
        )
    reason = "both nets are on the device of agent.net"
    yield from _each_set("agent.critic_net", critic_net, ["gpu", "cuda_graph"], reason)


def _graphs(
    algorithm: algorithms.AlgorithmSpec, net: NetSpec, meta: MetaSpec, blocks: Blocks
) -> Iterator[Problem]:
    names = [spec.name for _, spec in optimizer_paths(net, blocks.critic_net)]
    reason, other = "", set(names) - {"Adam", "GlobalAdam", "AdamW"}
    if net.gpu is False:
        reason = "a CUDA graph is for a GPU, but gpu is false"
    elif isinstance(algorithm, algorithms.OnPolicyLearningSpec):
        reason = f"{algorithm.name} does not record its gradient steps"
    elif any(each.type == "RecurrentNet" for each in blocks.nets.values()):
        reason = "a recurrent net reads the lengths of sequences in every step"
    elif meta.mode.has_ranks or meta.mode.lock_free:
        reason = f'the Sessions of "{meta.distributed}" exchange numbers in every step'
    elif other:
        reason = f"the step of {min(other)} cannot be recorded"
    if reason:
        yield from _each_set("agent.net", net, ["cuda_graph"], reason)


def _frames_on_a_device(memory: ReplaySpec, net: NetSpec) -> Iterator[Problem]:
    if memory.storage == "device" and net.gpu is False:
        yield Problem(
            "agent.memory.storage", 'gpu is false, so that "device" is the CPU'
        )


def _products(blocks: Blocks) -> Iterator[Problem]:
    for path, net in blocks.nets.items():
        if net.gpu is True or net.precision == "bf16":
            reason = "torch multiplies " + (
                "in bf16" if net.precision == "bf16" else "on a GPU"
            )
            yield from _each_set(path, net, ["matmul"], reason)
        if net.precision == "bf16" and not multiplies_in_half(net):
            yield Problem(
                f"{path}.precision", "the first layer and the heads are in float32"
            )


def _targets(algorithm: algorithms.AlgorithmSpec, blocks: Blocks) -> Iterator[Problem]:
    for path, net in blocks.nets.items():
        for key in _set_keys(net, TARGET_KEYS):
            if reason := _unused(algorithm, blocks, net, key):
                yield Problem(f"{path}.{key}", reason)


def _unused(
    algorithm: algorithms.AlgorithmSpec, blocks: Blocks, net: NetSpec, key: str
) -> str:
    """Why a key of target networks has no effect; "" if it has one, or if this is
    unknown."""
    role = targets_role(algorithm)
    if algorithm.HAS_TARGETS is None:
        return ""
    if not algorithm.HAS_TARGETS:
        return f"{algorithm.name} has no target networks"
    if role == "critic" and net is blocks.net and blocks.critic_net is not None:
        return "target networks follow the nets of agent.critic_net"
    if any(key.startswith(f"{other}_") for other in ROLES if other != role):
        return f"target networks of {algorithm.name} follow its {role}"
    update_type = net.role_keys(role).get("update_type", net.update_type)
    if key.endswith("polyak_coef") and update_type == "replace":
        return 'update_type is "replace"'
    return ""


def _each_set(
    path: str, block: Block, keys: Iterable[str], reason: str
) -> Iterator[Problem]:
    """The `keys` of the block at `path` whose values differ from the default."""
    return (Problem(f"{path}.{key}", reason) for key in keys if _is_set(block, key))


def _is_set(block: Block, key: str) -> bool:
    return getattr(block, key) != type(block).model_fields[key].default


def _set_keys(net: NetSpec, keys: Sequence[str]) -> Iterator[str]:
    """The `keys` that differ from the default, and their variants for one role."""
    for key in keys:
        if _is_set(net, key):
            yield key
        yield from (f"{role}_{key}" for role in ROLES if key in net.role_keys(role))


UNUSED_KEYS = (
    _exploration,
    _scale_of_actions,
    _nothing_to_learn,
    _ratio,
    _bounds_of_alpha,
    _one_net,
    _no_norm,
    _both_nets,
    _graphs,
    _frames_on_a_device,
    _products,
    _targets,
    _environment,
    _ranks,
    _blocks_of_modes,
    _actors_and_learner,
    _learner,
)
