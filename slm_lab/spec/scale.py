"""`meta.scale`: the spec of each of N ranks, derived from a spec for one process.

For Hogwild! workers only the target networks' keys change. The frame budget is not
divided, because it counts the frames of all ranks. Each rank has `num_envs`
environments. So rollouts that are N times shorter have the same number of frames in
all."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import (
    AlgorithmSpec,
    EntropyRegularisedSpec,
    OnPolicyLearningSpec,
    PPOSpec,
    ReplayLearningSpec,
)
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.net import ROLES, TARGET_KEYS, NetSpec
from slm_lab.spec.schema.optim import LRSchedulerSpec, OptimSpec, TorchPart
from slm_lab.spec.schema.spec import Spec

BlockT = TypeVar("BlockT", bound=Block)


class Divided(NamedTuple):
    """A key of algorithm or memory that is divided by N."""

    block: Literal["algorithm", "memory"]
    key: str
    exactly: bool
    """Whether it must be a multiple of N; otherwise the share is rounded up."""


TOTALS = (
    Divided("algorithm", "time_horizon", True),
    Divided("algorithm", "training_start_step", False),
    Divided("memory", "max_size", False),
)
"""Sizes of rollouts and replay memories, in total over all ranks."""

SAMPLES = (
    Divided("algorithm", "minibatch_size", True),
    Divided("memory", "batch_size", True),
)
"""Numbers of samples per gradient step."""

SAMPLES_OF_ROLLOUT = (Divided("algorithm", "training_frequency", True),)
"""The same for algorithms with one step per rollout: ActorCritic, Reinforce, SARSA."""

RATES: tuple[tuple[str, type[TorchPart], tuple[str, ...]], ...] = (
    ("optim_spec", OptimSpec, ("lr",)),
    ("lr_scheduler_spec", LRSchedulerSpec, ("base_lr", "max_lr", "eta_min")),
)
"""Keys of a net, and their arguments that are learning rates, not factors of one."""


def _divided_keys(
    algorithm: AlgorithmSpec | None, meta: MetaSpec
) -> tuple[Divided, ...]:
    """The keys that are divided among the ranks of a training. With "linear" each rank
    keeps the minibatch size, up to the size of its rollout. So a step of all ranks
    replaces N steps of one process. With "strong" the minibatch is divided too, and the
    updates equal those of one process."""
    if not meta.mode.has_ranks or meta.max_session == 1 or meta.scale == "weak":
        return ()
    if meta.scale == "linear":
        return TOTALS
    of_rollout = (
        SAMPLES_OF_ROLLOUT if isinstance(algorithm, OnPolicyLearningSpec) else ()
    )
    return (*TOTALS, *SAMPLES, *of_rollout)


def shares(
    algorithm: AlgorithmSpec | None,
    memory: MemorySpec | None,
    meta: MetaSpec,
    num_envs: int | None,
) -> tuple[AlgorithmSpec | None, MemorySpec | None]:
    """Both blocks with the values of one rank; shares are rounded up. A minibatch
    larger than a rank's rollout of `num_envs` environments is cut to that rollout.
    `num_envs` None (unknown) leaves it unchanged."""
    given, count = divided(algorithm, memory, meta), meta.max_session

    def share_of(name: str, block: BlockT | None) -> BlockT | None:
        update = {
            d.key: -(-value // count) for d, value in given.items() if d.block == name
        }
        return (
            block.model_copy(update=update) if block is not None and update else block
        )

    if given and meta.scale == "strong" and isinstance(algorithm, ReplayLearningSpec):
        # Each rank makes 1 / N of the frames, so it needs N times the steps per frame.
        key = (
            "training_batch_iter"
            if algorithm.update_to_data is None
            else "update_to_data"
        )
        algorithm = algorithm.model_copy(update={key: getattr(algorithm, key) * count})
    own, own_memory = share_of("algorithm", algorithm), share_of("memory", memory)
    if given and isinstance(own, PPOSpec) and num_envs is not None:
        minibatch = min(own.minibatch_size, own.time_horizon * num_envs)
        own = own.model_copy(update={"minibatch_size": minibatch})
    return own, own_memory


def scaled(spec: Spec) -> Spec:
    """The spec of each rank or Hogwild! worker; unchanged without them, or with only
    one."""
    meta, agent, count = spec.meta, spec.agent, spec.meta.max_session
    if not (meta.mode.has_ranks or meta.mode.lock_free) or count == 1:
        return spec
    if meta.mode.lock_free and agent.algorithm.HAS_TARGETS is False:
        return spec
    algorithm, memory = shares(agent.algorithm, agent.memory, meta, spec.env.num_envs)
    larger = _samples_of_a_step(agent.algorithm, algorithm, count)
    agent = agent.model_copy(update={"algorithm": algorithm, "memory": memory})
    agent = _with_nets(agent, lambda net: with_delayed_targets(net, meta))
    if meta.mode.in_step and meta.scale != "strong" and meta.scale_lr:
        agent = _with_larger_steps(agent, larger)
    return spec.model_copy(update={"agent": agent})


def with_delayed_targets(net: NetSpec, meta: MetaSpec) -> NetSpec:
    """A net whose target networks lag, in frames of all ranks, as they do in one
    process. With "weak" nothing changes. A Hogwild! worker updates its targets after
    each of its own steps. By then the shared weights have taken about W steps."""
    count = meta.max_session
    if meta.mode.lock_free:
        return _with_targets_as_often(net, count, count)
    count = count if meta.mode.has_ranks else 1
    if meta.scale == "strong":
        return _with_targets_as_often(net, count, 1)
    if meta.scale == "linear" and meta.scale_lr:
        return _with_targets_as_often(net, count, count)
    return net


def divided(
    algorithm: AlgorithmSpec | None, memory: MemorySpec | None, meta: MetaSpec
) -> Mapping[Divided, int]:
    """The keys that are divided among the ranks, with their values in the spec."""
    blocks = {"algorithm": dict(algorithm or ()), "memory": dict(memory or ())}
    keys = {
        each: blocks[each.block].get(each.key)
        for each in _divided_keys(algorithm, meta)
    }
    return {each: value for each, value in keys.items() if value is not None}


def _samples_of_a_step(
    given: AlgorithmSpec | None, own: AlgorithmSpec | None, count: int
) -> float:
    """The ratio of samples in a gradient step of `count` ranks to those of a single
    process. It is `count`, or less if the minibatch of a rank is smaller than the
    spec's."""
    if isinstance(given, PPOSpec) and isinstance(own, PPOSpec):
        return count * own.minibatch_size / given.minibatch_size
    return count


def _with_larger_steps(agent: AgentSpec, times: float) -> AgentSpec:
    agent = _with_nets(agent, lambda net: _with_larger_rates(net, times))
    algorithm = agent.algorithm
    if not isinstance(algorithm, EntropyRegularisedSpec) or algorithm.alpha_lr is None:
        return agent
    algorithm = algorithm.model_copy(update={"alpha_lr": algorithm.alpha_lr * times})
    return agent.model_copy(update={"algorithm": algorithm})


def _with_nets(agent: AgentSpec, change: Callable[[NetSpec], NetSpec]) -> AgentSpec:
    return agent.model_copy(
        update={key: change(net) for key, net in agent.nets.items()}
    )


def _with_targets_as_often(net: NetSpec, count: int, steps: int) -> NetSpec:
    """The net of each of `count` ranks, whose joint step replaces `steps` steps of one
    process. A polyak average after every step makes `steps` updates at once: it keeps
    (1 − τ)^steps of its old value (the scaling rule of arXiv:2307.13813). If the update
    frequency counts frames, one frame of a rank is `count` frames in all. So copies
    come after `count` times fewer frames, and an average makes `count` updates at
    once."""
    if count == 1:
        return net
    given = net.model_dump(mode="json")
    changed: dict[str, Any] = {}
    for prefix in ("", *(f"{role}_" for role in ROLES)):
        if prefix and not any(prefix + key in given for key in TARGET_KEYS):
            continue
        kind, frames, tau = (given.get(prefix + key, given[key]) for key in TARGET_KEYS)
        if kind == "replace":
            frames = -(-frames // count)
        elif (at_once := steps if frames == 1 else count) > 1:
            tau = 1 - (1 - tau) ** at_once
        # Sets both keys even if a role has only one: the other one now differs from the
        # net's.
        changed |= {f"{prefix}update_frequency": frames, f"{prefix}polyak_coef": tau}
    return type(net).model_validate({**given, **changed})


def _with_larger_rates(net: NetSpec, times: float) -> NetSpec:
    """The net with multiplied rates in all optimizers and schedules, those of a role
    too."""
    data = net.model_dump(mode="json")
    for name, model, rates in RATES:
        for key in (name, *(f"{role}_{name}" for role in ROLES)):
            if data.get(key) is not None:
                args = model.model_validate(data[key]).args
                larger = {
                    rate: _times(args[rate], times) for rate in rates if rate in args
                }
                data[key] = {**data[key], **larger}
    return type(net).model_validate(data)


def _times(rate: Any, times: float) -> Any:
    return (
        [each * times for each in rate]
        if isinstance(rate, list | tuple)
        else rate * times
    )
