"""What has to fit between the blocks of a spec: algorithm, memory, nets, optimizers, modes."""

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from slm_lab.core.errors import Problem
from slm_lab.core.registry import MEMORIES
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.role import optimizer_paths
from slm_lab.spec.schema.algorithm import (
    CONTINUOUS,
    DISCRETE,
    EXPLORING,
    IMITATING,
    AlgorithmSpec,
    DQNBaseSpec,
    PPOSpec,
    ReplayLearningSpec,
    SARSASpec,
)
from slm_lab.spec.schema.memory import MemorySpec, OnPolicySpec, ReplaySpec
from slm_lab.spec.schema.net import NetSpec, TorchArcNetSpec, given_keys

Space: TypeAlias = Literal["discrete", "box", "multi_discrete", "multi_binary"]

GLOBAL_TWIN = {"Adam": "GlobalAdam", "RMSprop": "GlobalRMSprop"}
OF_THE_HEAD = ("init_std", "optim_spec", "lr_scheduler_spec", "loss_spec", "out_layer_activation")
"""What a critic can have for itself although it shares the body."""

PDTYPES_OF_SPACE: dict[Space, frozenset[str]] = {
    "discrete": DISCRETE,
    "box": CONTINUOUS,
    "multi_discrete": frozenset({"MultiCategorical"}),
    "multi_binary": frozenset({"Bernoulli"}),
}


def cross_check(blocks: Blocks) -> list[Problem]:
    """Everything that does not fit together, in the order of the file."""
    return [problem for check in CHECKS for problem in check(blocks)]


def action_space_problems(
    algorithm: AlgorithmSpec, space: Space, has_low: bool = True, has_high: bool = True
) -> list[Problem]:
    """Whether the algorithm can act in an action space; to be asked once the space is known.

    `has_low` and `has_high` say whether a Box is bounded below and above in every component.
    """
    pdtype = algorithm.action_pdtype
    able = algorithm.PDTYPES
    fitting = PDTYPES_OF_SPACE[space] & (able if able is not None else PDTYPES_OF_SPACE[space])
    path = "agent.algorithm.action_pdtype"
    if not fitting:
        message = f"{algorithm.name} cannot act in a {space.replace('_', '-')} action space"
        return [Problem("agent.algorithm.name", message, algorithm.name, has_value=True)]
    if pdtype != "default" and pdtype not in fitting:
        allowed = ", ".join(sorted(fitting))
        message = f"does not fit a {space.replace('_', '-')} action space; use default or {allowed}"
        return [Problem(path, message, pdtype, has_value=True)]
    if algorithm.action_policy in EXPLORING and space != "discrete":
        message = (
            f"chooses one of n actions, not in a {space.replace('_', '-')} action space; "
            "use default or random"
        )
        path = "agent.algorithm.action_policy"
        return [Problem(path, message, algorithm.action_policy, has_value=True)]
    return _missing_bounds(algorithm, has_low, has_high)


def _missing_bounds(algorithm: AlgorithmSpec, has_low: bool, has_high: bool) -> list[Problem]:
    """What draws actions between bounds that the environment does not have."""
    problems = []
    if algorithm.NEEDS_BOUNDS and not (has_low and has_high):
        message = f"{algorithm.name} acts between bounds, and the environment's actions have none"
        problems.append(Problem("agent.algorithm.name", message, algorithm.name, has_value=True))
    pdtype, policy = algorithm.action_pdtype, algorithm.action_policy
    if (pdtype in ("Beta", "LogNormal") and not has_low) or (pdtype == "Beta" and not has_high):
        message = "needs bounds that the environment's actions do not have; use Normal"
        path = "agent.algorithm.action_pdtype"
        problems.append(Problem(path, message, pdtype, has_value=True))
    if policy == "random" and not (has_low and has_high):
        message = "draws between bounds, and the environment's actions have none; use default"
        path = "agent.algorithm.action_policy"
        problems.append(Problem(path, message, policy, has_value=True))
    return problems


def _memory_fits(blocks: Blocks) -> Iterator[Problem]:
    algorithm, memory = blocks.algorithm, blocks.memory
    if algorithm is None or algorithm.MEMORY is None or "memory" in blocks.malformed:
        return
    fitting = ", ".join(name for name in MEMORIES.names() if _suits(algorithm, name))
    if memory is None:
        yield Problem("agent.memory", f"is missing: {algorithm.name} learns from {fitting}")
    elif not algorithm.learns_from(type(memory)):
        message = f"does not suit {algorithm.name}, which learns from {fitting}"
        yield Problem("agent.memory.name", message, memory.name, has_value=True)


def _suits(algorithm: AlgorithmSpec, memory: str) -> bool:
    entry = MEMORIES.get(memory)
    model = entry.params if entry is not None else None
    return model is not None and issubclass(model, MemorySpec) and algorithm.learns_from(model)


def _imitation_has_its_memory(blocks: Blocks) -> Iterator[Problem]:
    algorithm, memory = blocks.algorithm, blocks.memory
    if algorithm is None or algorithm.name not in IMITATING or not isinstance(memory, OnPolicySpec):
        return
    given = {
        "sil_replay_name": memory.sil_replay_name,
        "batch_size": memory.batch_size,
        "max_size": memory.max_size,
    }
    for key, value in given.items():
        if value is None:
            yield Problem(
                f"agent.memory.{key}", f"is missing: {algorithm.name} keeps a replay memory"
            )


def _net_is_there(blocks: Blocks) -> Iterator[Problem]:
    algorithm = blocks.algorithm
    if algorithm is None or not algorithm.NEEDS_NET or "net" in blocks.malformed:
        return
    if blocks.net is None:
        yield Problem("agent.net", f"is missing: {algorithm.name} needs a net")


def _actions_fit(blocks: Blocks) -> Iterator[Problem]:
    algorithm = blocks.algorithm
    if algorithm is None:
        return
    pdtype, policy = algorithm.action_pdtype, algorithm.action_policy
    if algorithm.PDTYPES is not None and pdtype not in algorithm.PDTYPES:
        message = f"{algorithm.name} cannot use it; {_usable_pdtypes(algorithm.PDTYPES, pdtype)}"
        yield Problem("agent.algorithm.action_pdtype", message, pdtype, has_value=True)
    if policy not in EXPLORING:
        return
    if pdtype != "default" and pdtype not in DISCRETE:
        message = f"chooses among discrete actions, and action_pdtype is {pdtype}"
        yield Problem("agent.algorithm.action_policy", message, policy, has_value=True)
    schedule, path = algorithm.explore_var_spec, "agent.algorithm.explore_var_spec"
    if schedule is None:
        yield Problem(path, f"is missing: {policy} needs it")
    elif policy == "epsilon_greedy":
        for key, value in (("start_val", schedule.start_val), ("end_val", schedule.end_val)):
            if value is not None and value > 1:
                message = "must be <= 1: it is the probability of epsilon_greedy to explore"
                yield Problem(f"{path}.{key}", message, value, has_value=True)


def _usable_pdtypes(able: frozenset[str], given: str) -> str:
    """What to use in action spaces of the kind that `given` is for; if there is nothing, in all."""
    fitting = {space: sorted(names & able) for space, names in PDTYPES_OF_SPACE.items()}
    of_given = {s: names for s, names in fitting.items() if given in PDTYPES_OF_SPACE[s] and names}
    listed = [
        f"{', '.join(names)} in a {space.replace('_', '-')} action space"
        for space, names in (of_given or fitting).items()
        if names
    ]
    return f"use default, or {'; '.join(listed)}"


def _rollout_holds_a_minibatch(blocks: Blocks) -> Iterator[Problem]:
    algorithm, env = blocks.algorithm, blocks.env
    if not isinstance(algorithm, PPOSpec) or env is None:
        return
    rollout = algorithm.time_horizon * env.num_envs
    if algorithm.minibatch_size > rollout:
        message = (
            f"must be <= time_horizon × num_envs = {algorithm.time_horizon} × {env.num_envs} "
            f"= {rollout}, the frames of one rollout"
        )
        path = "agent.algorithm.minibatch_size"
        yield Problem(path, message, algorithm.minibatch_size, has_value=True)


def _replay_holds_the_steps_of_a_return(blocks: Blocks) -> Iterator[Problem]:
    algorithm, memory, env = blocks.algorithm, blocks.memory, blocks.env
    if not isinstance(memory, ReplaySpec) or env is None:
        return
    num_steps = algorithm.num_step_returns if isinstance(algorithm, DQNBaseSpec) else 1
    least = env.num_envs * num_steps
    if memory.max_size < least:
        message = (
            f"must be >= num_envs × num_step_returns = {env.num_envs} × {num_steps} = {least}, "
            "or no n-step return is ever whole"
        )
        yield Problem("agent.memory.max_size", message, memory.max_size, has_value=True)


def _newest_steps_leave_room(blocks: Blocks) -> Iterator[Problem]:
    memory, env = blocks.memory, blocks.env
    if not isinstance(memory, ReplaySpec) or env is None or not memory.use_cer:
        return
    if memory.batch_size <= env.num_envs:
        message = (
            f"must be > env.num_envs = {env.num_envs} with use_cer: the newest step of every "
            "environment is part of each batch, and would fill it"
        )
        yield Problem("agent.memory.batch_size", message, memory.batch_size, has_value=True)


def _update_to_data_is_exact(blocks: Blocks) -> Iterator[Problem]:
    algorithm = blocks.algorithm
    if not isinstance(algorithm, ReplayLearningSpec) or algorithm.update_to_data is None:
        return
    given = {
        "training_iter": algorithm.training_iter,
        "training_batch_iter": algorithm.training_batch_iter,
    }
    for key, value in given.items():
        if value != 1:
            message = "must be 1 with update_to_data, which sets the number of gradient steps alone"
            yield Problem(f"agent.algorithm.{key}", message, value, has_value=True)


def _batch_norm_sees_more_than_one_sample(blocks: Blocks) -> Iterator[Problem]:
    algorithm, env, net = blocks.algorithm, blocks.env, blocks.net
    if not isinstance(algorithm, PPOSpec) or env is None or net is None or not net.batch_norm:
        return
    rest = algorithm.time_horizon * env.num_envs % algorithm.minibatch_size
    if rest == 1 or algorithm.minibatch_size == 1:
        message = "leaves a minibatch of one sample, which batch_norm cannot normalise"
        path, size = "agent.algorithm.minibatch_size", algorithm.minibatch_size
        yield Problem(path, message, size, has_value=True)


def _dueling_needs_q_values(blocks: Blocks) -> Iterator[Problem]:
    algorithm, net = blocks.algorithm, blocks.net
    if algorithm is None or net is None or not net.type.startswith("Dueling"):
        return
    if algorithm.MEMORY is not None and not isinstance(algorithm, DQNBaseSpec | SARSASpec):
        message = f"splits Q into value and advantage, and {algorithm.name} has no Q to split"
        yield Problem("agent.net.type", message, net.type, has_value=True)


def _shared_body_has_one_optimizer(blocks: Blocks) -> Iterator[Problem]:
    net = blocks.net
    if net is None or not net.shared:
        return
    if blocks.critic_net is not None:
        message = "cannot be given with agent.net.shared: actor and critic are one net"
        yield Problem("agent.critic_net", message)
    for key in ("optim_spec", "lr_scheduler_spec"):
        path = f"agent.net.critic_{key}"
        if f"critic_{key}" in net.variants and not _same_for_both(net, key):
            message = "differs from the actor's, but a shared net has one optimizer; remove it"
            yield Problem(path, message, net.variants[f"critic_{key}"], has_value=True)
    for key in sorted(set(net.role_keys("critic")) - set(OF_THE_HEAD)):
        message = "cannot be given with shared: the critic has the actor's body"
        yield Problem(
            f"agent.net.critic_{key}", message, net.variants[f"critic_{key}"], has_value=True
        )


def _same_optimizer_means_same(blocks: Blocks) -> Iterator[Problem]:
    net = blocks.net
    if net is None or net.shared or not net.use_same_optim:
        return
    for key in ("optim_spec", "lr_scheduler_spec"):
        if f"critic_{key}" in net.variants and not _same_for_both(net, key):
            message = "differs from the actor's, but use_same_optim is true; remove one of the two"
            path = f"agent.net.critic_{key}"
            yield Problem(path, message, net.variants[f"critic_{key}"], has_value=True)


def _same_for_both(net: NetSpec, key: str) -> bool:
    """Whether actor and critic have equal `key`, defaults written out."""

    def resolved(role_keys: dict[str, object]) -> object:
        whole = type(net).model_validate({**net.own_keys(), **role_keys})
        return whole.model_dump(mode="json")[key]

    return resolved(net.role_keys("actor")) == resolved(net.role_keys("critic"))


def _each_role_has_an_optimizer(blocks: Blocks) -> Iterator[Problem]:
    net = blocks.net
    if net is None or net.shared or net.use_same_optim or blocks.critic_net is not None:
        return
    given = given_keys(net)
    if "optim_spec" in given:
        return
    for role, other in (("actor", "critic"), ("critic", "actor")):
        if f"{role}_optim_spec" not in given and f"{other}_optim_spec" in given:
            message = f"is missing: only {other}_optim_spec is given; or set use_same_optim"
            yield Problem(f"agent.net.{role}_optim_spec", message)


def _hogwild_needs_global_optimizers(blocks: Blocks) -> Iterator[Problem]:
    meta = blocks.meta
    if meta is None or meta.distributed not in ("shared", "synced"):
        return
    for path, optim in optimizer_paths(blocks.net, blocks.critic_net):
        if not optim.name.startswith("Global"):
            fix = GLOBAL_TWIN.get(optim.name, "GlobalAdam or GlobalRMSprop")
            message = (
                f'keeps its state in one process; with distributed "{meta.distributed}" use {fix}'
            )
            yield Problem(f"{path}.name", message, optim.name, has_value=True)


def _polyak_has_a_coefficient(blocks: Blocks) -> Iterator[Problem]:
    for path, net in (("agent.net", blocks.net), ("agent.critic_net", blocks.critic_net)):
        if net is not None and net.update_type == "polyak" and net.polyak_coef == 0:
            message = 'must be > 0 with update_type "polyak": at 0 the target never moves'
            yield Problem(f"{path}.polyak_coef", message, net.polyak_coef, has_value=True)


def _arc_is_there(blocks: Blocks) -> Iterator[Problem]:
    net, critic = blocks.net, blocks.critic_net
    if isinstance(net, TorchArcNetSpec) and net.arc is None:
        roles = set(net.variants) & {"actor_arc", "critic_arc"}
        if critic is not None:
            roles.add("critic_arc")
        if roles != {"actor_arc", "critic_arc"}:
            yield Problem("agent.net.arc", "is missing: the body of a TorchArcNet")
    if isinstance(critic, TorchArcNetSpec) and critic.arc is None:
        yield Problem("agent.critic_net.arc", "is missing: the body of a TorchArcNet")


def _runs_are_of_a_distributed_training(blocks: Blocks) -> Iterator[Problem]:
    meta = blocks.meta
    if meta is not None and meta.max_run > 1 and meta.distributed is False:
        message = "repeats a distributed training; with distributed false set max_session instead"
        yield Problem("meta.max_run", message, meta.max_run, has_value=True)


CHECKS: tuple[Callable[[Blocks], Iterator[Problem]], ...] = (
    _actions_fit,
    _rollout_holds_a_minibatch,
    _memory_fits,
    _imitation_has_its_memory,
    _replay_holds_the_steps_of_a_return,
    _newest_steps_leave_room,
    _update_to_data_is_exact,
    _net_is_there,
    _arc_is_there,
    _batch_norm_sees_more_than_one_sample,
    _dueling_needs_q_values,
    _shared_body_has_one_optimizer,
    _same_optimizer_means_same,
    _each_role_has_an_optimizer,
    _polyak_has_a_coefficient,
    _hogwild_needs_global_optimizers,
    _runs_are_of_a_distributed_training,
)
