"""`meta.scale`: the spec of each of N ranks, derived from a spec for one process.

For Hogwild! workers only the target networks' keys change. The frame budget is not
divided, because it counts the frames of all ranks. Each rank has `num_envs`
environments. So rollouts that are N times shorter have the same number of frames in
all."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.net import ROLES, TARGET_KEYS, NetSpec
from slm_lab.spec.schema.optim import LRSchedulerSpec, OptimSpec, TorchPart
from slm_lab.spec.schema.schedule import scaled_number
from slm_lab.spec.schema.spec import Spec

BlockT = TypeVar("BlockT", bound=Block)


class Divided(NamedTuple):
    """A key of algorithm or memory that is divided by N."""

    block: str
    key: str
    exactly: bool
    """Whether it must be a multiple of N; otherwise the share is rounded up."""


RATES: tuple[tuple[str, type[TorchPart], tuple[str, ...]], ...] = (
    ("optim_spec", OptimSpec, ("lr",)),
    ("lr_scheduler_spec", LRSchedulerSpec, ("base_lr", "max_lr", "eta_min")),
)
"""Keys of a net, and their arguments that are learning rates, not factors of one."""


def divided(
    algorithm: AlgorithmSpec | None, memory: MemorySpec | None, meta: MetaSpec
) -> dict[Divided, int]:
    """The keys that are divided among the ranks of a training, with their values in the
    spec. With "linear" each rank keeps the minibatch size, up to the size of its
    rollout. So a step of all ranks replaces N steps of one process. With "strong" the
    minibatch is divided too, and the updates equal the updates of one process."""
    if not meta.mode.has_ranks or meta.max_session == 1 or meta.scale == "weak":
        return {}
    keys: dict[Divided, int] = {}
    for name, block in (("algorithm", algorithm), ("memory", memory)):
        if block is None:
            continue
        exactly = dict(block.TOTALS)
        if meta.scales_strongly:
            exactly |= dict.fromkeys(block.SAMPLES, True)
        values = dict(block)
        for key, is_exact in exactly.items():
            if values.get(key) is not None:
                keys[Divided(name, key, is_exact)] = values[key]
    return keys


def shares(
    algorithm: AlgorithmSpec | None,
    memory: MemorySpec | None,
    meta: MetaSpec,
    num_envs: int | None,
) -> tuple[AlgorithmSpec | None, MemorySpec | None]:
    """Both blocks with the values of one rank; shares are rounded up. A minibatch
    larger than a rank's rollout of `num_envs` environments is cut to that rollout.
    `num_envs` None (unknown) leaves it unchanged."""
    keys = divided(algorithm, memory, meta)
    if not keys:
        return algorithm, memory

    def share_of(name: str, block: BlockT) -> BlockT:
        update = {
            key.key: -(-value // meta.max_session)
            for key, value in keys.items()
            if key.block == name
        }
        return block.model_copy(update=update)

    if algorithm is not None:
        if meta.scales_strongly:
            # Each rank makes 1 / N of the frames: N times the steps per frame.
            algorithm = algorithm.with_steps_per_frame(meta.max_session)
        algorithm = share_of("algorithm", algorithm).for_rank(num_envs)
    if memory is not None:
        memory = share_of("memory", memory)
    return algorithm, memory


def scaled(spec: Spec) -> Spec:
    """The spec of each rank or Hogwild! worker; unchanged without them, or with only
    one."""
    meta = spec.meta
    agent = spec.agent
    count = meta.max_session
    if not (meta.mode.has_ranks or meta.mode.lock_free) or count == 1:
        return spec
    if meta.mode.lock_free and agent.algorithm.HAS_TARGETS is False:
        return spec
    algorithm, memory = shares(agent.algorithm, agent.memory, meta, spec.env.num_envs)
    assert algorithm is not None
    samples = agent.algorithm.samples_ratio(algorithm, count)
    agent = agent.model_copy(update={"algorithm": algorithm, "memory": memory})
    agent = _with_nets(agent, lambda net: with_delayed_targets(net, meta))
    if meta.mode.in_step and not meta.scales_strongly and meta.scale_lr:
        agent = _with_larger_steps(agent, meta.rate_factor(samples))
    return spec.model_copy(update={"agent": agent})


def with_delayed_targets(net: NetSpec, meta: MetaSpec) -> NetSpec:
    """A net whose target networks lag, in frames of all ranks, as they do in one
    process. With "weak" nothing changes. A Hogwild! worker updates its targets after
    each of its own steps. By then the shared weights have taken about W steps.

    Rates that grow by √N change nothing here. As with rates that grow by N, N ranks'
    step then stands for N steps of one process (arXiv:2205.10287). A target that
    averages makes N updates at once under both rules (arXiv:2307.13813)."""
    count = meta.max_session
    if meta.mode.lock_free:
        return _with_targets_as_often(net, count, count)
    count = count if meta.mode.has_ranks else 1
    if meta.scales_strongly:
        return _with_targets_as_often(net, count, 1)
    if meta.scale == "linear" and meta.scale_lr:
        return _with_targets_as_often(net, count, count)
    return net


def _with_larger_steps(agent: AgentSpec, times: float) -> AgentSpec:
    agent = _with_nets(agent, lambda net: _with_larger_rates(net, times))
    algorithm = agent.algorithm.with_larger_rates(times)
    return agent.model_copy(update={"algorithm": algorithm})


def _with_nets(agent: AgentSpec, change: Callable[[NetSpec], NetSpec]) -> AgentSpec:
    return agent.model_copy(
        update={key: change(net) for key, net in agent.nets.items()}
    )


def _with_targets_as_often(net: NetSpec, count: int, steps: int) -> NetSpec:
    """The net of each of `count` ranks, whose joint step replaces `steps` steps of one
    process. A polyak average after every step makes `steps` updates at once. It keeps
    (1 − τ)^steps of its old value (the scaling rule of arXiv:2307.13813). If the update
    frequency counts frames, one frame of a rank is `count` frames in all. So copies
    come after `count` times fewer frames, and an average makes `count` updates at
    once."""
    if count == 1:
        return net
    keys = net.model_dump(mode="json")
    changed: dict[str, Any] = {}
    for prefix in ("", *(f"{role}_" for role in ROLES)):
        if prefix and not any(prefix + key in keys for key in TARGET_KEYS):
            continue
        kind, frames, tau = (keys.get(prefix + key, keys[key]) for key in TARGET_KEYS)
        if kind == "replace":
            frames = -(-frames // count)
        elif (at_once := steps if frames == 1 else count) > 1:
            tau = scaled_number(tau, lambda rate: 1 - (1 - rate) ** at_once)
        # Sets both keys even if a role has only one: the other one now differs from the
        # net's.
        changed |= {f"{prefix}update_frequency": frames, f"{prefix}polyak_coef": tau}
    return type(net).model_validate({**keys, **changed})


def _with_larger_rates(net: NetSpec, times: float) -> NetSpec:
    """The net with multiplied rates in all optimizers and schedules, also of a single
    role."""
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
    if isinstance(rate, list | tuple):
        return [number * times for number in rate]
    return rate * times
