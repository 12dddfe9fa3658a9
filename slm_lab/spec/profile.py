"""The dev profile: a short version of a spec that tests all its parts in seconds."""

from slm_lab.spec.schema.spec import Spec

DEV_TRAININGS = 4
"""Training events, or more if they come in quick succession."""
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
    workers = 1
    if spec.meta.mode.shares_budget:
        workers = sessions
    frames = spec.agent.algorithm.frames_of_events(DEV_TRAININGS, num_envs, spec.meta)
    max_frame = min(spec.env.max_frame, frames * workers)
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
