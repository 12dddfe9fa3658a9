"""`meta.actor_learner`: the length of actors' unrolls, and the algorithm of the
learner."""

from typing import TypeVar

from slm_lab.spec.schema.algorithm import (
    AlgorithmSpec,
    OnPolicyLearningSpec,
    PPOSpec,
    ReplayLearningSpec,
)
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.spec import Spec

AlgorithmT = TypeVar("AlgorithmT", bound=AlgorithmSpec)

REPLAYED_STEPS = 8
"""Default steps of an unroll for replay algorithms, which have no rollout length."""


def unroll_length(spec: Spec) -> int:
    """Steps of each environment in one unroll of an actor."""
    return steps_of_unroll(spec.agent.algorithm, spec.meta)


def steps_of_unroll(algorithm: AlgorithmSpec, meta: MetaSpec) -> int:
    """`unroll_length` from the two blocks that it depends on."""
    given = meta.actor_learner.unroll_length
    return rollout_length(algorithm) if given is None else given


def rollout_length(algorithm: AlgorithmSpec) -> int:
    """Steps of each environment that an algorithm collects before it learns from them.
    8 for replay algorithms, which learn from single steps or short sequences."""
    if isinstance(algorithm, PPOSpec):
        return algorithm.time_horizon
    if isinstance(algorithm, OnPolicyLearningSpec):
        return algorithm.training_frequency
    return REPLAYED_STEPS


def frames_of_event(
    algorithm: PPOSpec | OnPolicyLearningSpec, num_envs: int, meta: MetaSpec | None
) -> int:
    """Frames that one training event of an on-policy algorithm learns from: those of a
    rollout, or of all unrolls of the event. They are unknown if training_frequency
    counts episodes."""
    if meta is None or not meta.mode.has_learner:
        return rollout_length(algorithm) * num_envs
    return meta.actor_learner.learn_queue * steps_of_unroll(algorithm, meta) * num_envs


def as_learned(spec: Spec) -> Spec:
    """The spec that the learner is built from: a number as `train_ratio` sets the
    gradient steps per frame, null one batch per event, in place of the algorithm's own
    keys; else unchanged."""
    algorithm = learning_algorithm(spec.agent.algorithm, spec.meta)
    if algorithm is spec.agent.algorithm:
        return spec
    agent = spec.agent.model_copy(update={"algorithm": algorithm})
    return spec.model_copy(update={"agent": agent})


def learning_algorithm(algorithm: AlgorithmT, meta: MetaSpec | None) -> AlgorithmT:
    """The algorithm of the learner, see `as_learned`."""
    if meta is None or not meta.mode.has_learner:
        return algorithm
    ratio = meta.actor_learner.train_ratio
    if ratio == "spec" or not isinstance(algorithm, ReplayLearningSpec):
        return algorithm
    if ratio is None:
        freely = {
            "update_to_data": None,
            "training_frequency": 1,
            "training_batch_iter": 1,
        }
        return algorithm.model_copy(update=freely)
    # Each batch that the ratio counts is one gradient step.
    exact = {"update_to_data": ratio, "training_iter": 1, "training_batch_iter": 1}
    return algorithm.model_copy(update=exact)


def trains_freely(meta: MetaSpec | None) -> bool:
    """Whether the learner trains as fast as it can, and ignores the replay algorithm's
    own keys."""
    if meta is None or not meta.mode.has_learner:
        return False
    return meta.actor_learner.train_ratio is None


def trains_by_frequency(algorithm: ReplayLearningSpec, meta: MetaSpec | None) -> bool:
    """Whether `training_frequency` schedules the training, not a ratio or a free
    learner."""
    return (
        not trains_freely(meta)
        and learning_algorithm(algorithm, meta).update_to_data is None
    )
