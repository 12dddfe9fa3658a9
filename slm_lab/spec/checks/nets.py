"""Checks the nets of a spec against each other, their optimizers, the algorithm and the
mode."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.schema.agent import (
    OPTIMIZER_KEYS,
    built_nets,
    optimizer_paths,
    targets_role,
)
from slm_lab.spec.schema.bounds import WEIGHTS
from slm_lab.spec.schema.meta import ACTORS
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.rules import known

GLOBAL_TWIN = {"Adam": "GlobalAdam", "RMSprop": "GlobalRMSprop"}
OF_THE_HEAD = (
    "init_std",
    "optim_spec",
    "lr_scheduler_spec",
    "loss_spec",
    "out_layer_activation",
)
"""Keys that a critic may have for its own head although it shares the body."""


def _check_arc(blocks: Blocks) -> Iterator[Problem]:
    for path, net in blocks.nets.items():
        variants = set(net.variants)
        if blocks.critic_net is not None:
            variants.add("critic_arc")
        for_each_role = path == "agent.net" and variants >= {"actor_arc", "critic_arc"}
        if net.lacks_arc and not for_each_role:
            yield Problem(f"{path}.arc", "is missing: the body of a TorchArcNet")


def check_batch_norm(blocks: Blocks) -> Iterator[Problem]:
    """Rejects batch norm with rollouts of one sample, which have no standard deviation.
    The length of whole episodes is unknown here."""
    algorithm = known(blocks.algorithm)
    meta = blocks.settings
    is_one_batch = algorithm.ROLLOUT_KEY == "training_frequency"
    if not is_one_batch or not known(blocks.memory).COUNTS_STEPS:
        return
    frames = algorithm.frames_of_event(known(blocks.env).num_envs, meta)
    if frames > 1 or not blocks.batch_normalised:
        return
    path = "agent.algorithm.training_frequency"
    if meta.mode.has_learner and meta.actor_learner.unroll_length is not None:
        path = f"{ACTORS}.unroll_length"
    message = "makes batches of one sample, which batch_norm cannot normalise"
    yield Problem(path, message, 1)


def _check_required_nets(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    if algorithm.NEEDS_NET and blocks.net is None and "net" not in blocks.malformed:
        yield Problem("agent.net", f"is missing: {algorithm.name} needs a net")
    if algorithm.has_one_net and blocks.critic_net is not None:
        message = (
            f"{algorithm.name} has one net, agent.net, and no critic; remove the block"
        )
        yield Problem("agent.critic_net", message)


def _check_shared_body(blocks: Blocks) -> Iterator[Problem]:
    net = known(blocks.net)
    if not net.shared or _has_critic(blocks, "none", "apart"):
        return
    if blocks.critic_net is not None:
        message = "cannot be given with agent.net.shared: actor and critic are one net"
        yield Problem("agent.critic_net", message)
    message = "differs from the actor's, but a shared net has one optimizer; remove it"
    yield from _differing_optimizer_keys(net, message)
    # shared says why critic_obs needs a body of its own
    may_have = {*OF_THE_HEAD, "obs"}
    for key in sorted(set(net.role_keys("critic")) - may_have):
        message = "cannot be given with shared: the critic has the actor's body"
        yield Problem(f"agent.net.critic_{key}", message, net.variants[f"critic_{key}"])


def _has_critic(blocks: Blocks, *kinds: str) -> bool:
    """Whether the algorithm is known to have such a critic."""
    return blocks.algorithm is not None and blocks.algorithm.CRITIC in kinds


def _check_tails(blocks: Blocks) -> Iterator[Problem]:
    agent = known(blocks.agent)
    problems: dict[str, Problem] = {}
    for block, net, role in built_nets(agent):
        of_role = net.for_role(role)
        is_joint = of_role.shared and agent.algorithm.CRITIC == "may_share"
        message = of_role.wrong_tails(2 if is_joint else 1)
        if message is not None:
            path = f"{block}.{net.file_key(role, 'hid_layers')}.2"
            tails = of_role.model_dump()["hid_layers"][2]
            problems[path] = Problem(path, message, tails)
    yield from problems.values()


def _check_same_optimizer(blocks: Blocks) -> Iterator[Problem]:
    net = known(blocks.net)
    if not net.shared and net.use_same_optim:
        message = (
            "differs from the actor's, but use_same_optim is true; remove one of the "
            "two"
        )
        yield from _differing_optimizer_keys(net, message)


def _differing_optimizer_keys(net: NetSpec, message: str) -> Iterator[Problem]:
    """A problem for each optimizer key of the critic whose value, in full, is not the
    actor's."""
    actor = net.for_role("actor").model_dump(mode="json")
    critic = net.for_role("critic").model_dump(mode="json")
    for key in OPTIMIZER_KEYS:
        variant = f"critic_{key}"
        if variant in net.variants and actor[key] != critic[key]:
            yield Problem(f"agent.net.{variant}", message, net.variants[variant])


def _check_role_optimizers(blocks: Blocks) -> Iterator[Problem]:
    net = known(blocks.net)
    written_keys = set(net.model_fields_set) | set(net.variants)
    one_for_both = net.shared or net.use_same_optim or "optim_spec" in written_keys
    if one_for_both or blocks.critic_net is not None:
        return
    roles = [("actor", "critic")]
    if not _has_critic(blocks, "none"):
        roles.append(("critic", "actor"))
    for role, other in roles:
        if (
            f"{role}_optim_spec" not in written_keys
            and f"{other}_optim_spec" in written_keys
        ):
            message = (
                f"is missing: only {other}_optim_spec is given; or set use_same_optim"
            )
            yield Problem(f"agent.net.{role}_optim_spec", message)


def _check_polyak_coef(blocks: Blocks) -> Iterator[Problem]:
    """Rejects polyak averaging with coefficient 0, in the net that target networks
    copy."""
    algorithm = known(blocks.algorithm)
    role = targets_role(algorithm)
    path = "agent.net"
    if role == "critic" and blocks.critic_net is not None:
        path = "agent.critic_net"
    net = known(blocks.nets.get(path))
    followed = net.for_role(role)
    still = followed.update_type == "polyak" and followed.polyak_coef == 0
    if still and algorithm.HAS_TARGETS is not False:
        message = 'must be > 0 with update_type "polyak": at 0 the target never moves'
        key = net.file_key(role, "polyak_coef")
        yield Problem(f"{path}.{key}", message, followed.polyak_coef)


def _check_global_optimizers(blocks: Blocks) -> Iterator[Problem]:
    meta = known(blocks.meta)
    if not meta.mode.lock_free:
        return
    for whole_path, whole in optimizer_paths(blocks.net, blocks.critic_net):
        path, optim = whole.stepping(whole_path)
        if not optim.name.startswith("Global"):
            fix = GLOBAL_TWIN.get(optim.name, "GlobalAdam or GlobalRMSprop")
            message = (
                "keeps its state in one process; with distributed "
                f'"{meta.distributed}" use {fix}'
            )
            yield Problem(f"{path}.name", message, optim.name)


def _check_recurrent_critic(blocks: Blocks) -> Iterator[Problem]:
    net = known(blocks.net)
    path = "agent.net"
    critic_net = net
    if blocks.critic_net is not None:
        path = "agent.critic_net"
        critic_net = blocks.critic_net
    elif known(blocks.algorithm).has_one_net:
        return
    actor = net.for_role("actor")
    critic = critic_net.for_role("critic")
    parts_key = critic_net.file_key("critic", "parts")
    if actor.is_recurrent != critic.is_recurrent:
        message = "actor and critic are both recurrent, or neither is"
        if actor.RECURRENT or critic.RECURRENT:
            yield Problem(f"{path}.type", message, critic.type)
        else:
            yield Problem(f"{path}.{parts_key}", message)
    elif actor.sequence_length != critic.sequence_length:
        message = f"must equal that of the actor, {actor.sequence_length}"
        key = "seq_len" if critic.RECURRENT else parts_key
        yield Problem(f"{path}.{key}", message, critic.sequence_length)


def _check_weight_count(blocks: Blocks) -> Iterator[Problem]:
    for path, net in blocks.nets.items():
        weights = max(of_role.hidden_weights() for of_role in net.for_roles)
        message = WEIGHTS.refusal(weights)
        if message:
            yield Problem(
                path, f"its hidden layers have {weights:,} weights, which {message}"
            )


NET_CHECKS = (
    _check_arc,
    _check_required_nets,
    _check_shared_body,
    _check_tails,
    _check_same_optimizer,
    _check_role_optimizers,
    _check_polyak_coef,
    _check_global_optimizers,
    _check_recurrent_critic,
    _check_weight_count,
)
