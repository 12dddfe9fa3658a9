"""The dev profile: a short version of a spec that tests all its parts in seconds."""

from slm_lab.spec.schema.algorithm import (
    OnPolicyLearningSpec,
    PPOSpec,
    ReplayLearningSpec,
)
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.unrolls import frames_of_event, unroll_length

DEV_TRAININGS = 4

DEV_ROWS = 8
DEV_SESSIONS = 2
DEV_EVAL_ENVS = 2


def dev_profile(spec: Spec) -> Spec:
    """The spec with a budget of a few training events, at most two Sessions and one
    trial. It has at most two evaluation environments, and logs often enough for a
    graph. The agent itself is unchanged."""
    num_envs = spec.env.num_envs
    sessions = min(spec.meta.max_session, DEV_SESSIONS)
    # A learner trains on the frames of all its actors, so their number does not
    # multiply these.
    workers = sessions if spec.meta.mode.shares_budget else 1
    max_frame = min(spec.env.max_frame, _frames_of_trainings(spec) * workers)
    per_row = max(1, max_frame // workers // DEV_ROWS)
    env = spec.env.model_copy(update={"max_frame": max(max_frame, num_envs)})
    meta = spec.meta.model_copy(
        update={
            "max_session": sessions,
            "max_trial": 1,
            "max_run": 1,
            "log_frequency": per_row
            if spec.logs_by_default
            else min(spec.log_frequency, per_row),
            "eval_frequency": min(spec.meta.eval_frequency, per_row),
            "rigorous_eval": min(spec.meta.rigorous_eval, DEV_EVAL_ENVS),
        }
    )
    return spec.model_copy(update={"env": env, "meta": meta})


def _frames_of_trainings(spec: Spec) -> int:
    """Frames up to DEV_TRAININGS training events, or more events if they come in quick
    succession. Includes the frames before the first event."""
    algorithm, num_envs, meta = spec.agent.algorithm, spec.env.num_envs, spec.meta
    has_actors = meta.mode.has_learner
    if isinstance(algorithm, PPOSpec):
        return DEV_TRAININGS * frames_of_event(algorithm, num_envs, meta)
    if isinstance(algorithm, ReplayLearningSpec):
        unroll_frames = num_envs * unroll_length(spec) if has_actors else 0
        some_events = 16 * max(algorithm.training_frequency, num_envs)
        return algorithm.training_start_step + DEV_TRAININGS * max(
            some_events, unroll_frames
        )
    if isinstance(algorithm, OnPolicyLearningSpec) and has_actors:
        return DEV_TRAININGS * max(
            256 * num_envs, frames_of_event(algorithm, num_envs, meta)
        )
    return DEV_TRAININGS * 256 * num_envs
