"""Warnings about valid specs: keys that have no effect, and settings that are probably
not meant that way.

Keys with the value of their default are not reported. A spec with all defaults written
out has dozens of them. Most keys say in their model when they have no effect. The rest
depends on roles of nets and on the modes that are installed."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks, findings
from slm_lab.spec.modes import MODES
from slm_lab.spec.scale import shares, with_delayed_targets
from slm_lab.spec.schema.agent import net_for_role, targets_role
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.meta import ACTORS, MetaSpec
from slm_lab.spec.schema.net import ROLES, TARGET_KEYS, NetSpec
from slm_lab.spec.schema.rules import NoEffect, Suspicious, is_within, known
from slm_lab.spec.schema.spec import ROWS

FEW_ROWS = 100
"""Fewer rows than this make a coarse curve."""

MOST_OF_A_NET = 0.9
"""A target that takes more than this of the net at each update is no slow average."""


def unused_keys(blocks: Blocks) -> list[Problem]:
    """The keys without effect, each once. Of a block that is reported as a whole, no
    key is."""
    notes: list[Problem] = []
    for note in findings(blocks, (NoEffect,), UNUSED_KEYS):
        if not any(is_within(note.path, earlier.path) for earlier in notes):
            notes.append(note)
    return notes


def _check_unused_nets(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    paths = list(blocks.nets)
    if blocks.memory is not None:
        paths.insert(0, "agent.memory")
    if not algorithm.LEARNS:
        yield from (Problem(path, f"{algorithm.name} learns nothing") for path in paths)


def _check_unused_modes(blocks: Blocks) -> Iterator[Problem]:
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


def _check_unused_critic_keys(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    if not algorithm.has_one_net:
        return
    for key in known(blocks.net).role_keys("critic"):
        if key not in TARGET_KEYS:
            message = f"{algorithm.name} has one net and no critic"
            yield Problem(f"agent.net.critic_{key}", message)


def _check_unused_target_keys(blocks: Blocks) -> Iterator[Problem]:
    for path, net in blocks.nets.items():
        for key in TARGET_KEYS:
            for changed in net.changed(key):
                reason = _reason_without_target(blocks, net, changed)
                if reason:
                    yield Problem(f"{path}.{changed}", reason)


def _reason_without_target(blocks: Blocks, net: NetSpec, key: str) -> str:
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


UNUSED_KEYS = (
    _check_unused_nets,
    _check_unused_modes,
    _check_unused_critic_keys,
    _check_unused_target_keys,
)


def suspicious_settings(blocks: Blocks) -> list[Problem]:
    """Valid settings that are probably mistakes."""
    return findings(blocks, (Suspicious,), SUSPICIOUS)


def _check_exploration(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    schedule = algorithm.explore_var_spec
    if algorithm.explores and schedule is not None:
        end = None
        if schedule.changes:
            end = schedule.end_val
        if schedule.start_val == 0 and end in (0, None):
            path = "agent.algorithm.explore_var_spec.start_val"
            yield Problem(path, "and stays 0, so nothing is explored", 0)


def _check_target_copies(blocks: Blocks) -> Iterator[Problem]:
    """Warns if a target network hardly ever differs from the net that it copies."""
    agent = known(blocks.agent)
    num_envs = known(blocks.env).num_envs
    meta = blocks.settings
    algorithm = _algorithm_of_one(blocks).for_learner(meta)
    frames = algorithm.frames_between_events(num_envs)
    if frames is None or not algorithm.HAS_TARGETS or meta.trains_freely:
        return  # the number of updates is unknown
    role = targets_role(algorithm)
    net = net_for_role(agent, role)
    followed = with_delayed_targets(net, meta)
    averages = followed.polyak_coef < 1 or "polyak_coef" in net.schedules
    if followed.update_type == "polyak" and averages:
        return
    if followed.update_frequency > frames:
        return
    message = (
        "the net is copied after every training event; these are at least "
        f"{frames} frames apart, so the target network hardly differs from it; set a "
        'larger update_frequency, or update_type "polyak" with a small polyak_coef'
    )
    path = f"agent.{agent.net_key(role)}.update_frequency"
    yield Problem(path, message, net.update_frequency)


def _check_target_averages(blocks: Blocks) -> Iterator[Problem]:
    """Warns of averages that keep less of the target than they take from the net."""
    agent = known(blocks.agent)
    if not agent.algorithm.HAS_TARGETS:
        return
    net = net_for_role(agent, targets_role(agent.algorithm))
    tau = net.greatest("polyak_coef")
    if net.update_type != "polyak" or not MOST_OF_A_NET < tau < 1:
        return
    message = (
        f"the target takes {tau:.1%} of the net at each update, so it hardly differs "
        f"from it; old files of SLM Lab have 1 − τ, which is {1 - tau:.3g} here"
    )
    yield Problem(net.path_of("polyak_coef"), message, tau)


def _algorithm_of_one(blocks: Blocks) -> AlgorithmSpec:
    """The algorithm with the values of one rank, or the spec's own without ranks."""
    num_envs = None
    if blocks.env is not None:
        num_envs = blocks.env.num_envs
    algorithm, _ = shares(blocks.algorithm, None, blocks.settings, num_envs)
    return known(algorithm)


def _check_crossq_norm(blocks: Blocks) -> Iterator[Problem]:
    agent = known(blocks.agent)
    if not agent.algorithm.ALWAYS_NORMALISES:
        return
    critic = net_for_role(agent, "critic")
    if critic.HAS_ARC and not critic.lacks_arc and not critic.batch_normalised:
        message = (
            "has no batch norm: critics without it and without target networks "
            "diverge; put LazyBatchRenorm1d after its linear layers"
        )
        yield Problem(f"agent.{agent.net_key('critic')}.arc", message)


def _check_first_event(blocks: Blocks) -> Iterator[Problem]:
    """Warns if the budget ends before the first training event, as far as the spec
    shows it."""
    env = known(blocks.env)
    meta = blocks.settings
    first = known(_first_learning_frame(blocks))
    workers = 1
    if meta.mode.shares_budget:
        workers = meta.max_session
    if first * workers > env.max_frame:
        of_each = " of each worker" if workers > 1 else ""
        message = (
            f"ends before the first training event, which comes after {first} "
            f"frames{of_each}: nothing is learned"
        )
        yield Problem("env.max_frame", message, env.max_frame)


def _check_publish_frequency(blocks: Blocks) -> Iterator[Problem]:
    """Warns if actors never get new weights. Checks only training events of a fixed
    size."""
    algorithm = known(blocks.algorithm)
    meta = known(blocks.meta)
    frames = known(_first_learning_frame(blocks))
    if not meta.mode.has_learner or algorithm.ROLLOUT_KEY is None:
        return
    frequency = meta.actor_learner.publish_frequency
    events = known(blocks.env).max_frame // frames
    if 1 <= events < frequency:
        message = (
            f"is more than the {events} training events of the whole run: actors keep "
            "the initial weights"
        )
        yield Problem(f"{ACTORS}.publish_frequency", message, frequency)


def _first_learning_frame(blocks: Blocks) -> int | None:
    """Frames before the first training event; None if it depends on episodes or shared
    replay."""
    if "memory" in blocks.malformed:
        return None
    return _algorithm_of_one(blocks).first_learning_frame(
        blocks.counts_steps, known(blocks.env).num_envs, blocks.settings
    )


def has_few_rows(env: EnvSpec, meta: MetaSpec) -> bool:
    """Whether `log_frequency` is given, and too large for a curve within the budget."""
    frequency = meta.log_frequency
    if frequency is None:
        return False
    return meta.share_of(env.max_frame) // frequency < FEW_ROWS


def _check_row_count(blocks: Blocks) -> Iterator[Problem]:
    env = known(blocks.env)
    meta = known(blocks.meta)
    frequency = known(meta.log_frequency)
    if has_few_rows(env, meta):
        frames = meta.share_of(env.max_frame)
        rows = frames // frequency
        fix = f"leave it out for {ROWS} rows, or set {max(1, frames // ROWS)}"
        message = f"gives {rows} rows, too few for a graph; {fix}"
        yield Problem("meta.log_frequency", message, frequency)


SUSPICIOUS = (
    _check_exploration,
    _check_target_copies,
    _check_target_averages,
    _check_crossq_norm,
    _check_first_event,
    _check_publish_frequency,
    _check_row_count,
)
