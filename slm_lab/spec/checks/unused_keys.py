"""Valid keys that have no effect in this spec; reported as warnings.

Values equal to the default are not reported, because a spec with all defaults written
out has dozens of them. Most keys say in their model when they have no effect. The rest
depends on roles of nets and on the modes that are installed."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks, findings, is_within
from slm_lab.spec.modes import MODES
from slm_lab.spec.role import targets_role
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.meta import ACTORS
from slm_lab.spec.schema.net import ROLES, TARGET_KEYS, NetSpec
from slm_lab.spec.schema.rules import NoEffect, known


def unused_keys(blocks: Blocks) -> list[Problem]:
    """The keys without effect, each once. Of a block that is reported as a whole, no
    key is."""
    notes: list[Problem] = []
    for note in findings(blocks, (NoEffect,), CHECKS):
        if not any(is_within(note.path, earlier.path) for earlier in notes):
            notes.append(note)
    return notes


def _nothing_to_learn(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    paths = list(blocks.nets)
    if blocks.memory is not None:
        paths.insert(0, "agent.memory")
    if not algorithm.LEARNS:
        yield from (Problem(path, f"{algorithm.name} learns nothing") for path in paths)


def _blocks_of_modes(blocks: Blocks) -> Iterator[Problem]:
    """Keys of `meta.<word>` if `distributed` names another mode."""
    meta = known(blocks.meta)
    for word in MODES.names():
        settings = getattr(meta, word, None)
        is_used = meta.distributed == word
        is_used |= f"meta.{word}" == ACTORS and meta.mode.has_learner
        if is_used or not isinstance(settings, Block):
            continue
        for key in type(settings).model_fields:
            for changed in settings.changed(key):
                path = f"meta.{word}.{changed}"
                yield Problem(path, f'distributed is not "{word}"')


def _keys_of_a_critic(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    if not algorithm.has_one_net:
        return
    for key in known(blocks.net).role_keys("critic"):
        if key not in TARGET_KEYS:
            message = f"{algorithm.name} has one net and no critic"
            yield Problem(f"agent.net.critic_{key}", message)


def _targets(blocks: Blocks) -> Iterator[Problem]:
    for path, net in blocks.nets.items():
        for key in TARGET_KEYS:
            for changed in net.changed(key):
                reason = _no_target(blocks, net, changed)
                if reason:
                    yield Problem(f"{path}.{changed}", reason)


def _no_target(blocks: Blocks, net: NetSpec, key: str) -> str:
    """Why a key of target networks has no effect; "" if it has one, or if this is
    unknown."""
    algorithm = known(blocks.algorithm)
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


CHECKS = (_nothing_to_learn, _blocks_of_modes, _keys_of_a_critic, _targets)
