"""Warnings about valid specs that are probably not meant that way."""

import math
from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.role import net_for_role, targets_role
from slm_lab.spec.scale import shares, with_delayed_targets
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import (
    EXPLORING,
    AlgorithmSpec,
    CrossQSpec,
    DQNBaseSpec,
    OnPolicyLearningSpec,
    PPOSpec,
    ReplayLearningSpec,
    SARSASpec,
)
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.meta import ACTORS, MetaSpec
from slm_lab.spec.schema.net import TorchArcNetSpec
from slm_lab.spec.schema.spec import ROWS
from slm_lab.spec.unrolls import frames_of_event, learning_algorithm, trains_freely

FEW_ROWS = 100
"""Fewer rows than this make a coarse curve."""


def _nothing_is_explored(algorithm: AlgorithmSpec) -> Iterator[Problem]:
    greedy = algorithm.action_pdtype in ("default", "Argmax")
    of_values = isinstance(algorithm, DQNBaseSpec | SARSASpec)
    if of_values and greedy and algorithm.action_policy == "default":
        message = (
            "takes the best action every time, so nothing is explored; use "
            "epsilon_greedy or boltzmann with an explore_var_spec"
        )
        yield Problem("agent.algorithm.action_policy", message, algorithm.action_policy)
    schedule = algorithm.explore_var_spec
    if algorithm.action_policy in EXPLORING and schedule is not None:
        end = None if schedule.name == "no_decay" else schedule.end_val
        if schedule.start_val == 0 and end in (0, None):
            path = "agent.algorithm.explore_var_spec.start_val"
            yield Problem(path, "and stays 0, so nothing is explored", 0)


def _targets_lag_behind(
    agent: AgentSpec, env: EnvSpec, blocks: Blocks
) -> Iterator[Problem]:
    """Warns if a target network hardly ever differs from the net that it copies."""
    meta, algorithm = blocks.meta, _algorithm_of_one(blocks)
    if not isinstance(algorithm, ReplayLearningSpec) or not algorithm.HAS_TARGETS:
        return
    if trains_freely(meta):
        return  # the number of updates is unknown
    algorithm, role = learning_algorithm(algorithm, meta), targets_role(algorithm)
    in_file = net_for_role(agent, role)
    followed = in_file if meta is None else with_delayed_targets(in_file, meta)
    if followed.update_type == "polyak" and followed.polyak_coef < 1:
        return
    frames = _frames_between_events(algorithm, env.num_envs)
    if followed.update_frequency > frames:
        return
    message = (
        "the net is copied after every training event, and these are at least "
        f"{frames} frames apart, so the target network hardly differs from it; set a "
        "larger update_frequency, or "
        'update_type "polyak" with a small polyak_coef'
    )
    path = f"agent.{agent.net_key(role)}.update_frequency"
    yield Problem(path, message, in_file.update_frequency)


def _algorithm_of_one(blocks: Blocks) -> AlgorithmSpec | None:
    """The algorithm with the values of one rank, or the spec's own without ranks."""
    if blocks.meta is None:
        return blocks.algorithm
    num_envs = None if blocks.env is None else blocks.env.num_envs
    return shares(blocks.algorithm, None, blocks.meta, num_envs)[0]


def _frames_between_events(algorithm: ReplayLearningSpec, num_envs: int) -> int:
    if algorithm.update_to_data is not None:
        return max(1, math.floor(1 / (algorithm.update_to_data * num_envs))) * num_envs
    return max(1, algorithm.training_frequency // num_envs) * num_envs


def _crossq_goes_without_its_norm(
    algorithm: CrossQSpec, agent: AgentSpec
) -> Iterator[Problem]:
    critic = net_for_role(agent, "critic")
    if (
        isinstance(critic, TorchArcNetSpec)
        and critic.arc
        and not critic.arc.batch_normalised
    ):
        message = (
            "has no batch norm: critics without it and without target networks "
            "diverge; put LazyBatchRenorm1d after its linear layers"
        )
        yield Problem(f"agent.{agent.net_key('critic')}.arc", message)


def _nothing_is_learned(env: EnvSpec, blocks: Blocks) -> Iterator[Problem]:
    """Warns if the budget ends before the first training event, as far as the spec
    shows it."""
    meta, first = blocks.meta, _frames_to_learning(blocks)
    workers = meta.max_session if meta is not None and meta.mode.shares_budget else 1
    if first is not None and first * workers > env.max_frame:
        of_each = " of each worker" if workers > 1 else ""
        message = (
            f"ends before the first training event, which comes after {first} "
            f"frames{of_each}: nothing is learned"
        )
        yield Problem("env.max_frame", message, env.max_frame)


def _nothing_is_published(
    algorithm: PPOSpec | OnPolicyLearningSpec,
    env: EnvSpec,
    meta: MetaSpec,
    blocks: Blocks,
) -> Iterator[Problem]:
    """Warns if actors never get new weights. Checks only training events of a fixed
    size."""
    frames, given = _frames_to_learning(blocks), meta.actor_learner.publish_frequency
    if not meta.mode.has_learner or frames is None:
        return
    events = env.max_frame // frames
    if 1 <= events < given:
        message = (
            f"is more than the {events} training events of the whole run: actors keep "
            "the initial weights"
        )
        yield Problem(f"{ACTORS}.publish_frequency", message, given)


def _frames_to_learning(blocks: Blocks) -> int | None:
    """Frames before the first training event; None if it depends on episodes or shared
    replay."""
    memory, env, meta = blocks.memory, blocks.env, blocks.meta
    algorithm = _algorithm_of_one(blocks)
    if env is None or "memory" in blocks.malformed:
        return None
    if isinstance(algorithm, ReplayLearningSpec):
        if meta is not None and meta.mode.has_ranks:
            return None
        return _frames_to_replay(algorithm, env.num_envs, meta)
    by_steps = memory is None or memory.name == "OnPolicyBatchReplay"
    if isinstance(algorithm, PPOSpec) or (
        isinstance(algorithm, OnPolicyLearningSpec) and by_steps
    ):
        return frames_of_event(algorithm, env.num_envs, meta)
    return None


def _frames_to_replay(
    algorithm: ReplayLearningSpec, num_envs: int, meta: MetaSpec | None
) -> int:
    """Frames stored when the first gradient step is due. `num_envs` frames come at a
    time, and one of them must be a multiple of `training_frequency`."""

    def stored(frames: int) -> int:
        return math.ceil(frames / num_envs) * num_envs

    start = stored(max(algorithm.training_start_step, 1))
    if trains_freely(meta):
        return start
    if (ratio := learning_algorithm(algorithm, meta).update_to_data) is not None:
        return stored(algorithm.training_start_step + math.ceil(1 / ratio - 1e-9))
    events_before = (start - num_envs) // algorithm.training_frequency
    return stored((events_before + 1) * algorithm.training_frequency)


def has_few_rows(env: EnvSpec, meta: MetaSpec) -> bool:
    """Whether `log_frequency` is given, and too large for a curve within the budget."""
    given = meta.log_frequency
    return given is not None and meta.share_of(env.max_frame) // given < FEW_ROWS


def _rows_are_few(env: EnvSpec, meta: MetaSpec) -> Iterator[Problem]:
    if has_few_rows(env, meta) and meta.log_frequency is not None:
        frames = meta.share_of(env.max_frame)
        rows = frames // meta.log_frequency
        fix = f"leave it out for {ROWS} rows, or set {max(1, frames // ROWS)}"
        message = f"gives {rows} rows, too few for a graph; {fix}"
        yield Problem("meta.log_frequency", message, meta.log_frequency)


SUSPICIOUS = (
    _nothing_is_explored,
    _targets_lag_behind,
    _crossq_goes_without_its_norm,
    _nothing_is_learned,
    _nothing_is_published,
    _rows_are_few,
)
