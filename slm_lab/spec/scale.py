"""`meta.scale`: what each of N ranks runs of a spec that is written for one process. Of Hogwild!
workers only the target networks differ.

The frame budget needs no division: it is counted over all ranks. Each rank has `num_envs`
environments, so a rollout that is N times shorter has as many frames in all.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import (
    AlgorithmSpec,
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


class Part(NamedTuple):
    """A key of algorithm or memory that is divided by N."""

    path: str
    exactly: bool
    """Whether it has to be a multiple of N; else it is rounded up."""


TOTALS = (
    Part("agent.algorithm.time_horizon", True),
    Part("agent.algorithm.training_start_step", False),
    Part("agent.memory.max_size", False),
)
"""What a rollout or a replay memory holds in all."""

SAMPLES = (
    Part("agent.algorithm.minibatch_size", True),
    Part("agent.memory.batch_size", True),
)
"""What a gradient step is made from."""

ROLLOUT = (Part("agent.algorithm.training_frequency", True),)
"""The same where the whole rollout makes one step: ActorCritic, Reinforce, SARSA."""

HOGWILD = ("shared", "synced")
"""Modes whose workers share their weights, and have target networks of their own."""

RATES: tuple[tuple[str, type[TorchPart], tuple[str, ...]], ...] = (
    ("optim_spec", OptimSpec, ("lr",)),
    ("lr_scheduler_spec", LRSchedulerSpec, ("base_lr", "max_lr", "eta_min")),
)
"""Keys of a net, and their arguments that are learning rates; others are parts of one."""


def parts_of(algorithm: AlgorithmSpec | None, meta: MetaSpec) -> tuple[Part, ...]:
    """What is divided among the ranks of a training.

    With "linear" each rank keeps its minibatch, as far as its rollout fills it: a step of all
    stands for N steps of one. With "strong" the minibatch is divided as well: the updates are
    those of one process, shared out.
    """
    if meta.distributed != "all_reduce" or meta.max_session == 1 or meta.scale == "weak":
        return ()
    if meta.scale == "linear":
        return TOTALS
    of_rollout = ROLLOUT if isinstance(algorithm, OnPolicyLearningSpec) else ()
    return (*TOTALS, *SAMPLES, *of_rollout)


def shares(
    algorithm: AlgorithmSpec | None,
    memory: MemorySpec | None,
    meta: MetaSpec,
    num_envs: int | None,
) -> tuple[AlgorithmSpec | None, MemorySpec | None]:
    """Both blocks as each rank has them; what does not divide is rounded up.

    A minibatch that a rank's rollout, of `num_envs` environments, cannot fill becomes that rollout.
    With None, where the number is not known, it stays.
    """
    parts = parts_of(algorithm, meta)
    count = meta.max_session
    if parts and meta.scale == "strong" and isinstance(algorithm, ReplayLearningSpec):
        # Each rank makes 1 / N of the frames: N times the steps for each of them are as many.
        ratio = algorithm.update_to_data
        more: dict[str, Any] = {"training_batch_iter": algorithm.training_batch_iter * count}
        if ratio is not None:
            more = {"update_to_data": ratio * count}
        algorithm = algorithm.model_copy(update=more)
    own = _divided(algorithm, parts, "agent.algorithm.", count)
    own_memory = _divided(memory, parts, "agent.memory.", count)
    if parts and isinstance(own, PPOSpec) and num_envs is not None:
        rollout = own.time_horizon * num_envs
        minibatch = min(own.minibatch_size, rollout)
        own = own.model_copy(update={"minibatch_size": minibatch})
    return own, own_memory


def scaled(spec: Spec) -> Spec:
    """The spec of each rank or Hogwild! worker; without them, or with one, it is the same."""
    meta, agent, count = spec.meta, spec.agent, spec.meta.max_session
    if meta.distributed not in ("all_reduce", *HOGWILD) or count == 1:
        return spec
    if meta.distributed in HOGWILD:
        if agent.algorithm.HAS_TARGETS is False:
            return spec
        agent = _with_nets(agent, lambda net: following(net, meta))
        return spec.model_copy(update={"agent": agent})
    algorithm, memory = shares(agent.algorithm, agent.memory, meta, spec.env.num_envs)
    larger = _samples_of_a_step(agent.algorithm, algorithm, count)
    agent = agent.model_copy(update={"algorithm": algorithm, "memory": memory})
    agent = _with_nets(agent, lambda net: following(net, meta))
    if meta.scale != "strong" and meta.scale_lr:
        agent = _with_larger_steps(agent, larger)
    return spec.model_copy(update={"agent": agent})


def following(net: NetSpec, meta: MetaSpec) -> NetSpec:
    """A net whose targets follow over the frames of all ranks as they do over those of one process.

    With "weak" nothing is divided, and they follow as they did. A Hogwild! worker's targets follow
    after each of its own steps, and the weights that all share have taken W by then.
    """
    count = meta.max_session
    if meta.distributed in HOGWILD:
        return _with_targets_as_often(net, count, count)
    count = count if meta.distributed == "all_reduce" else 1
    if meta.scale == "strong":
        return _with_targets_as_often(net, count, 1)
    if meta.scale == "linear" and meta.scale_lr:
        return _with_targets_as_often(net, count, count)
    return net


def given_parts(
    algorithm: AlgorithmSpec | None, memory: MemorySpec | None, meta: MetaSpec
) -> Mapping[Part, int]:
    """What is divided among the ranks, with the values in the spec."""
    blocks = {"algorithm": algorithm, "memory": memory}
    found = {}
    for part in parts_of(algorithm, meta):
        _, block, key = part.path.split(".")
        value = _fields(blocks[block]).get(key)
        if value is not None:
            found[part] = value
    return found


def _divided(
    block: BlockT | None, parts: tuple[Part, ...], prefix: str, count: int
) -> BlockT | None:
    keys = [part.path.removeprefix(prefix) for part in parts if part.path.startswith(prefix)]
    given = {key: value for key, value in _fields(block).items() if key in keys and value}
    if block is None or not given:
        return block
    return block.model_copy(update={key: -(-value // count) for key, value in given.items()})


def _fields(block: Block | None) -> dict[str, Any]:
    return {} if block is None else dict(block)


def _samples_of_a_step(given: AlgorithmSpec | None, own: AlgorithmSpec | None, count: int) -> float:
    """A gradient step of `count` ranks over one of a single process, in samples: their number, or
    less where the minibatch of each is smaller than that in the spec."""
    if isinstance(given, PPOSpec) and isinstance(own, PPOSpec):
        return count * own.minibatch_size / given.minibatch_size
    return count


def _with_larger_steps(agent: AgentSpec, times: float) -> AgentSpec:
    """With `times` the learning rates."""
    agent = _with_nets(agent, lambda net: _with_larger_rates(net, times))
    alpha_lr = _fields(agent.algorithm).get("alpha_lr")
    if alpha_lr is None:
        return agent
    algorithm = agent.algorithm.model_copy(update={"alpha_lr": alpha_lr * times})
    return agent.model_copy(update={"algorithm": algorithm})


def _with_nets(agent: AgentSpec, change: Callable[[NetSpec], NetSpec]) -> AgentSpec:
    return agent.model_copy(update={key: change(net) for key, net in agent.nets.items()})


def _with_targets_as_often(net: NetSpec, count: int, steps: int) -> NetSpec:
    """See `following`, for `count` ranks of which each step stands for `steps` of one process.

    After every step a polyak average goes the way of `steps` at once: (1 − τ)^steps of what it was
    remains (the scaling rule of arXiv:2307.13813). Where frames are counted, those of a rank stand
    for `count` times as many: a copy is made after fewer, an average goes so much further.
    """
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
        # Both, also where a role gives one of them: the other is no more that of the net.
        changed |= {f"{prefix}update_frequency": frames, f"{prefix}polyak_coef": tau}
    return type(net).model_validate({**given, **changed})


def _with_larger_rates(net: NetSpec, times: float) -> NetSpec:
    """Of all its optimizers and schedules, those of one role too."""
    data = net.model_dump(mode="json")
    for name, model, rates in RATES:
        for key in (name, *(f"{role}_{name}" for role in ROLES)):
            if data.get(key) is not None:
                args = model.model_validate(data[key]).args
                larger = {rate: _times(args[rate], times) for rate in rates if rate in args}
                data[key] = {**data[key], **larger}
    return type(net).model_validate(data)


def _times(rate: Any, times: float) -> Any:
    """`times` a rate, or each of a list of them."""
    return [each * times for each in rate] if isinstance(rate, list | tuple) else rate * times
