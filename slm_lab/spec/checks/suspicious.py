"""Warnings about valid specs that are probably not meant that way."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.role import net_for_role, targets_role
from slm_lab.spec.scale import shares, with_delayed_targets
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.meta import ACTORS, MetaSpec
from slm_lab.spec.schema.rules import known
from slm_lab.spec.schema.spec import ROWS

FEW_ROWS = 100
"""Fewer rows than this make a coarse curve."""


def _nothing_is_explored(blocks: Blocks) -> Iterator[Problem]:
    algorithm = known(blocks.algorithm)
    greedy = algorithm.action_pdtype in ("default", "Argmax")
    if algorithm.ACTS_ON_Q and greedy and algorithm.action_policy == "default":
        message = (
            "takes the best action every time, so nothing is explored; use "
            "epsilon_greedy or boltzmann with an explore_var_spec"
        )
        yield Problem("agent.algorithm.action_policy", message, algorithm.action_policy)
    schedule = algorithm.explore_var_spec
    if algorithm.explores and schedule is not None:
        end = schedule.end_val if schedule.changes else None
        if schedule.start_val == 0 and end in (0, None):
            path = "agent.algorithm.explore_var_spec.start_val"
            yield Problem(path, "and stays 0, so nothing is explored", 0)


def _targets_lag_behind(blocks: Blocks) -> Iterator[Problem]:
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
    if followed.update_type == "polyak" and followed.polyak_coef < 1:
        return
    if followed.update_frequency > frames:
        return
    message = (
        "the net is copied after every training event, and these are at least "
        f"{frames} frames apart, so the target network hardly differs from it; set a "
        'larger update_frequency, or update_type "polyak" with a small polyak_coef'
    )
    path = f"agent.{agent.net_key(role)}.update_frequency"
    yield Problem(path, message, net.update_frequency)


def _algorithm_of_one(blocks: Blocks) -> AlgorithmSpec:
    """The algorithm with the values of one rank, or the spec's own without ranks."""
    num_envs = None if blocks.env is None else blocks.env.num_envs
    algorithm, _ = shares(blocks.algorithm, None, blocks.settings, num_envs)
    return known(algorithm)


def _crossq_goes_without_its_norm(blocks: Blocks) -> Iterator[Problem]:
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


def _nothing_is_learned(blocks: Blocks) -> Iterator[Problem]:
    """Warns if the budget ends before the first training event, as far as the spec
    shows it."""
    env = known(blocks.env)
    meta = blocks.settings
    first = known(_first_learning_frame(blocks))
    workers = meta.max_session if meta.mode.shares_budget else 1
    if first * workers > env.max_frame:
        of_each = " of each worker" if workers > 1 else ""
        message = (
            f"ends before the first training event, which comes after {first} "
            f"frames{of_each}: nothing is learned"
        )
        yield Problem("env.max_frame", message, env.max_frame)


def _nothing_is_published(blocks: Blocks) -> Iterator[Problem]:
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


def _rows_are_few(blocks: Blocks) -> Iterator[Problem]:
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
    _nothing_is_explored,
    _targets_lag_behind,
    _crossq_goes_without_its_norm,
    _nothing_is_learned,
    _nothing_is_published,
    _rows_are_few,
)
