"""A spec made short, to see in seconds that all of it works."""

from slm_lab.spec.schema.algorithm import OnPolicyLearningSpec, PPOSpec, ReplayLearningSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.unrolls import frames_of_event, unroll_length

DEV_TRAININGS = 4
"""Training events of a dev run."""

DEV_ROWS = 8
DEV_SESSIONS = 2
DEV_EVAL_ENVS = 2


def dev_profile(spec: Spec) -> Spec:
    """The same spec with a frame budget of a few training events each, at most two Sessions, one
    trial, at most two evaluation environments, and rows often enough for a graph. Nothing that the
    agent computes is changed."""
    num_envs = spec.env.num_envs
    sessions = min(spec.meta.max_session, DEV_SESSIONS)
    # One learner trains on what all of its actors do.
    workers = 1 if spec.meta.distributed in (False, "actor_learner") else sessions
    max_frame = min(spec.env.max_frame, _frames_of_trainings(spec) * workers)
    per_row = max(1, max_frame // workers // DEV_ROWS)
    env = spec.env.model_copy(update={"max_frame": max(max_frame, num_envs)})
    meta = spec.meta.model_copy(
        update={
            "max_session": sessions,
            "max_trial": 1,
            "max_run": 1,
            "log_frequency": per_row if spec.logs_by_default else min(spec.log_frequency, per_row),
            "eval_frequency": min(spec.meta.eval_frequency, per_row),
            "rigorous_eval": min(spec.meta.rigorous_eval, DEV_EVAL_ENVS),
        }
    )
    return spec.model_copy(update={"env": env, "meta": meta})


def _frames_of_trainings(spec: Spec) -> int:
    """Frames of DEV_TRAININGS events, or of as many as come soon one after the other, with those
    before the first."""
    algorithm, num_envs, meta = spec.agent.algorithm, spec.env.num_envs, spec.meta
    has_actors = meta.distributed == "actor_learner"
    if isinstance(algorithm, PPOSpec):
        return DEV_TRAININGS * frames_of_event(algorithm, num_envs, meta)
    if isinstance(algorithm, ReplayLearningSpec):
        handed_over = num_envs * unroll_length(spec) if has_actors else 0
        some_events = 16 * max(algorithm.training_frequency, num_envs)
        return algorithm.training_start_step + DEV_TRAININGS * max(some_events, handed_over)
    if isinstance(algorithm, OnPolicyLearningSpec) and has_actors:
        return DEV_TRAININGS * max(256 * num_envs, frames_of_event(algorithm, num_envs, meta))
    return DEV_TRAININGS * 256 * num_envs
