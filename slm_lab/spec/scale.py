"""`meta.scale`: what each of N ranks runs of a spec that is written for one process.

The frame budget needs no division: it is counted over all ranks. Each rank has `num_envs`
environments, so a rollout that is N times shorter has as many frames in all.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import AlgorithmSpec, OnPolicyLearningSpec, ReplayLearningSpec
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.net import NetSpec
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


def parts_of(algorithm: AlgorithmSpec | None, meta: MetaSpec) -> tuple[Part, ...]:
    """What is divided among the ranks of a training.

    With "linear" each rank keeps its minibatch: a step of all stands for N steps of one. With
    "strong" the minibatch is divided as well: the updates are those of one process, shared out.
    """
    if meta.distributed != "all_reduce" or meta.max_session == 1 or meta.scale == "weak":
        return ()
    if meta.scale == "linear":
        return TOTALS
    of_rollout = ROLLOUT if isinstance(algorithm, OnPolicyLearningSpec) else ()
    return (*TOTALS, *SAMPLES, *of_rollout)


def shares(
    algorithm: AlgorithmSpec | None, memory: MemorySpec | None, meta: MetaSpec
) -> tuple[AlgorithmSpec | None, MemorySpec | None]:
    """Both blocks as each rank has them; what does not divide is rounded up."""
    parts = parts_of(algorithm, meta)
    count = meta.max_session
    if parts and meta.scale == "strong" and isinstance(algorithm, ReplayLearningSpec):
        # Each rank makes 1 / N of the frames: N times the steps for each of them are as many.
        ratio = algorithm.update_to_data
        more: dict[str, Any] = {"training_batch_iter": algorithm.training_batch_iter * count}
        if ratio is not None:
            more = {"update_to_data": ratio * count}
        algorithm = algorithm.model_copy(update=more)
    return _divided(algorithm, parts, "agent.algorithm.", count), _divided(
        memory, parts, "agent.memory.", count
    )


def scaled(spec: Spec) -> Spec:
    """The spec of each rank; without ranks, or with one, it is the same."""
    meta, agent = spec.meta, spec.agent
    if meta.distributed != "all_reduce" or meta.max_session == 1:
        return spec
    algorithm, memory = shares(agent.algorithm, agent.memory, meta)
    agent = agent.model_copy(update={"algorithm": algorithm, "memory": memory})
    if meta.scale != "strong" and meta.scale_lr:
        agent = _with_larger_steps(agent, meta.max_session)
    return spec.model_copy(update={"agent": agent})


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


def _with_larger_steps(agent: AgentSpec, count: int) -> AgentSpec:
    """With N times the learning rates."""
    update: dict[str, Any] = {
        key: _with_larger_rate(net, count)
        for key, net in (("net", agent.net), ("critic_net", agent.critic_net))
        if net is not None
    }
    alpha_lr = _fields(agent.algorithm).get("alpha_lr")
    if alpha_lr is not None:
        update["algorithm"] = agent.algorithm.model_copy(update={"alpha_lr": alpha_lr * count})
    return agent.model_copy(update=update)


def _with_larger_rate(net: NetSpec, count: int) -> NetSpec:
    args = net.optim_spec.args
    optim_spec = net.optim_spec.model_copy(update={"args": {**args, "lr": args["lr"] * count}})
    return net.model_copy(update={"optim_spec": optim_spec})
