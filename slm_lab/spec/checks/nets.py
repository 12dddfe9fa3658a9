"""Checks the nets of a spec against each other, their optimizers, the algorithm and the
mode."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.role import (
    OPTIMIZER_KEYS,
    built_nets,
    folded,
    optimizer_paths,
    targets_role,
)
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import (
    AlgorithmSpec,
    DQNBaseSpec,
    OnPolicyLearningSpec,
    PPOSpec,
    SARSASpec,
)
from slm_lab.spec.schema.memory import OnPolicyBatchReplaySpec, OnPolicySpec, ReplaySpec
from slm_lab.spec.schema.meta import ACTORS, MetaSpec
from slm_lab.spec.schema.net import (
    ROLES,
    HydraMLPNetSpec,
    NetSpec,
    TorchArcNetSpec,
    given_keys,
)
from slm_lab.spec.unrolls import frames_of_event

GLOBAL_TWIN = {"Adam": "GlobalAdam", "RMSprop": "GlobalRMSprop"}
OF_THE_HEAD = (
    "init_std",
    "optim_spec",
    "lr_scheduler_spec",
    "loss_spec",
    "out_layer_activation",
)
"""Keys that a critic may have for its own head although it shares the body."""


def _arc_is_there(blocks: Blocks) -> Iterator[Problem]:
    for path, net in blocks.nets.items():
        given = set(net.variants) | (
            {"critic_arc"} if blocks.critic_net is not None else set()
        )
        for_each = path == "agent.net" and given >= {"actor_arc", "critic_arc"}
        if isinstance(net, TorchArcNetSpec) and net.arc is None and not for_each:
            yield Problem(f"{path}.arc", "is missing: the body of a TorchArcNet")


def batch_norm_problems(blocks: Blocks) -> Iterator[Problem]:
    """Rejects batch norm with batches of one sample, which have no standard deviation.
    The length of whole episodes is unknown here."""
    if not any(map(_batch_normalised, blocks.nets.values())):
        return
    algorithm, env, memory = blocks.algorithm, blocks.env, blocks.memory
    if isinstance(algorithm, PPOSpec):
        if algorithm.minibatch_size == 1:
            message = "is one sample, which batch_norm cannot normalise"
            yield Problem("agent.algorithm.minibatch_size", message, 1)
    elif isinstance(algorithm, OnPolicyLearningSpec) and env is not None:
        single = frames_of_event(algorithm, env.num_envs, blocks.meta) == 1
        if isinstance(memory, OnPolicyBatchReplaySpec) and single:
            message = "makes batches of one sample, which batch_norm cannot normalise"
            yield Problem(_length_path(blocks.meta), message, 1)
    if isinstance(memory, ReplaySpec | OnPolicySpec) and memory.batch_size == 1:
        message = "is one sample, which batch_norm cannot normalise"
        yield Problem("agent.memory.batch_size", message, 1)


def _length_path(meta: MetaSpec | None) -> str:
    """The key of the number of steps that an on-policy algorithm other than PPO learns
    from."""
    if (
        meta is None
        or not meta.mode.has_learner
        or meta.actor_learner.unroll_length is None
    ):
        return "agent.algorithm.training_frequency"
    return f"{ACTORS}.unroll_length"


def _batch_normalised(net: NetSpec) -> bool:
    for own in (folded(net, role) for role in ROLES):
        if own.batch_norm:
            return True
        if (
            isinstance(own, TorchArcNetSpec)
            and own.arc is not None
            and own.arc.batch_normalised
        ):
            return True
    return False


def _dueling_needs_q_values(
    algorithm: AlgorithmSpec, net: NetSpec
) -> Iterator[Problem]:
    has_q = algorithm.MEMORY is None or isinstance(algorithm, DQNBaseSpec | SARSASpec)
    if net.type.startswith("Dueling") and not has_q:
        message = (
            f"splits Q into value and advantage, and {algorithm.name} has no Q to split"
        )
        yield Problem("agent.net.type", message, net.type)


def _nets_are_those_of_the_algorithm(
    algorithm: AlgorithmSpec, blocks: Blocks
) -> Iterator[Problem]:
    net = blocks.net
    if algorithm.NEEDS_NET and net is None and "net" not in blocks.malformed:
        yield Problem("agent.net", f"is missing: {algorithm.name} needs a net")
    if algorithm.CRITIC == "apart" and net is not None and net.shared:
        message = (
            f"{algorithm.name} has critics separate from the actor; set it to false"
        )
        yield Problem("agent.net.shared", message, True)
    if algorithm.CRITIC == "none" and blocks.critic_net is not None:
        message = (
            f"{algorithm.name} has one net, agent.net, and no critic; remove the block"
        )
        yield Problem("agent.critic_net", message)


def _shared_body_has_one_optimizer(
    net: NetSpec, algorithm: AlgorithmSpec | None, blocks: Blocks
) -> Iterator[Problem]:
    if not net.shared or (
        algorithm is not None and algorithm.CRITIC in ("none", "apart")
    ):
        return
    if blocks.critic_net is not None:
        message = "cannot be given with agent.net.shared: actor and critic are one net"
        yield Problem("agent.critic_net", message)
    message = "differs from the actor's, but a shared net has one optimizer; remove it"
    yield from _unlike_the_actors(net, message)
    for key in sorted(set(net.role_keys("critic")) - set(OF_THE_HEAD)):
        message = "cannot be given with shared: the critic has the actor's body"
        yield Problem(f"agent.net.critic_{key}", message, net.variants[f"critic_{key}"])


def _tails_are_one_for_each_output(agent: AgentSpec) -> Iterator[Problem]:
    found: dict[str, Problem] = {}
    for block, given, role in built_nets(agent):
        own = folded(given, role)
        if not isinstance(own, HydraMLPNetSpec):
            continue
        outputs = 2 if own.shared and agent.algorithm.CRITIC == "may_share" else 1
        path = f"{block}.{given.file_key(role, 'hid_layers')}.2"
        if (message := wrong_tails(own, outputs)) is not None:
            found[path] = Problem(path, message, own.hid_layers[2])
    yield from found.values()


def wrong_tails(net: HydraMLPNetSpec, outputs: int) -> str | None:
    """Why `net` cannot have this number of outputs; None if it can."""
    tails = len(net.tails())
    if tails in (1, outputs):
        return None
    return (
        f"has {tails} tails, and this network needs {outputs}; give one list for all "
        "outputs, or one list each (with shared: policy, value)"
    )


def _same_optimizer_means_same(net: NetSpec) -> Iterator[Problem]:
    if not net.shared and net.use_same_optim:
        message = (
            "differs from the actor's, but use_same_optim is true; remove one of the "
            "two"
        )
        yield from _unlike_the_actors(net, message)


def _unlike_the_actors(net: NetSpec, message: str) -> Iterator[Problem]:
    """A problem for each optimizer key of the critic whose value, in full, is not the
    actor's."""
    actor, critic = (folded(net, role).model_dump(mode="json") for role in ROLES)
    for key in OPTIMIZER_KEYS:
        if f"critic_{key}" in net.variants and actor[key] != critic[key]:
            yield Problem(
                f"agent.net.critic_{key}", message, net.variants[f"critic_{key}"]
            )


def _each_role_has_an_optimizer(
    net: NetSpec, algorithm: AlgorithmSpec | None, blocks: Blocks
) -> Iterator[Problem]:
    given = given_keys(net)
    one_for_both = net.shared or net.use_same_optim or "optim_spec" in given
    if one_for_both or blocks.critic_net is not None:
        return
    roles = (("actor", "critic"), ("critic", "actor"))
    one_net = algorithm is not None and algorithm.CRITIC == "none"
    for role, other in roles[:1] if one_net else roles:
        if f"{role}_optim_spec" not in given and f"{other}_optim_spec" in given:
            message = (
                f"is missing: only {other}_optim_spec is given; or set use_same_optim"
            )
            yield Problem(f"agent.net.{role}_optim_spec", message)


def _polyak_has_a_coefficient(
    algorithm: AlgorithmSpec, blocks: Blocks
) -> Iterator[Problem]:
    """Rejects polyak averaging with coefficient 0, in the net that target networks
    copy."""
    role, path, net = targets_role(algorithm), "agent.net", blocks.net
    if role == "critic" and blocks.critic_net is not None:
        path, net = "agent.critic_net", blocks.critic_net
    if algorithm.HAS_TARGETS is False or net is None:
        return
    followed = folded(net, role)
    if followed.update_type == "polyak" and followed.polyak_coef == 0:
        message = 'must be > 0 with update_type "polyak": at 0 the target never moves'
        key = net.file_key(role, "polyak_coef")
        yield Problem(f"{path}.{key}", message, followed.polyak_coef)


def _sharing_needs_global_optimizers(
    meta: MetaSpec, blocks: Blocks
) -> Iterator[Problem]:
    if not meta.mode.lock_free:
        return
    for path, optim in optimizer_paths(blocks.net, blocks.critic_net):
        if not optim.name.startswith("Global"):
            fix = GLOBAL_TWIN.get(optim.name, "GlobalAdam or GlobalRMSprop")
            message = (
                "keeps its state in one process; with distributed "
                f'"{meta.distributed}" use {fix}'
            )
            yield Problem(f"{path}.name", message, optim.name)


NET_CHECKS = (
    _arc_is_there,
    batch_norm_problems,
    _dueling_needs_q_values,
    _nets_are_those_of_the_algorithm,
    _shared_body_has_one_optimizer,
    _tails_are_one_for_each_output,
    _same_optimizer_means_same,
    _each_role_has_an_optimizer,
    _polyak_has_a_coefficient,
    _sharing_needs_global_optimizers,
)
