"""Environments with slow resets, and with steps or resets that do not end, in every
mode."""

import pytest

from tests.faults.lab import call, command, trial_metrics, write_spec
from tests.support import ppo

ENVS = """
import threading, time, gymnasium, numpy as np
class Timed(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, copy=0, reset_seconds=0.0, hang=None):
        self.is_odd, self.reset_seconds, self.hang = copy % 2 == 1, reset_seconds, hang
        self.episodes = 0
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episodes = 0, self.episodes + 1
        if self.episodes == 2 and self.is_odd:
            time.sleep(self.reset_seconds)
            if self.hang == "reset":
                threading.Event().wait()
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.t += 1
        if self.episodes == 2 and self.is_odd and self.hang == "step":
            threading.Event().wait()
        return np.zeros(1, np.float32), 1.0, self.t == 30, False, {}
gymnasium.register("Timed-v0", Timed)
"""
pytestmark = pytest.mark.slow

STEP_SECONDS = 5.0
MODES = {
    "independent": {},
    "async": {},
    "shared": {"max_session": 2, "distributed": "shared"},
    "all_reduce": {"max_session": 2, "distributed": "all_reduce"},
    "actor_learner": {"max_session": 1, "distributed": "actor_learner"},
    "serial": {
        "max_session": 1,
        "distributed": "actor_learner",
        "actor_learner": {"serial": True},
    },
}


def train(folder, mode, *options, env=None, **meta):
    (folder / "timed.py").write_text(ENVS)
    meta = {"max_restart": 0, "step_seconds": STEP_SECONDS, **MODES[mode], **meta}
    how = {"vectorization_mode": "async"} if mode == "async" else {}
    spec = ppo(env__name="Timed-v0", env__num_envs=2, env__max_frame=800)
    spec["env"] |= {"index_key": "copy", **how, **(env or {})}
    spec["meta"] |= {"log_frequency": 200, **meta}
    spec["agent"]["algorithm"]["minibatch_size"] = 16
    write_spec(folder, spec)
    return call([*command(folder, "train", *options), "--import", "timed"], folder)


@pytest.mark.parametrize("mode", MODES)
def test_a_reset_that_takes_longer_than_a_step_may_is_no_hang(tmp_path, mode):
    done = train(tmp_path, mode, env={"reset_seconds": STEP_SECONDS + 3})
    assert done.code == 0
    assert "hangs" not in done.err + done.out
    sessions = trial_metrics(tmp_path)["sessions"]
    assert [session["restarts"] for session in sessions] == [0] * len(sessions)


@pytest.mark.parametrize("hang", ["step", "reset"])
@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_does_not_end_is_reported_with_its_session_copy_and_key(
    tmp_path, mode, hang
):
    """In one process copies are stepped one after another, unseen; their resets are
    seen."""
    done = train(tmp_path, mode, env={"hang": hang}, reset_seconds=STEP_SECONDS)
    assert done.code == 1
    why = next(line for line in done.err.splitlines() if " hangs: " in line)
    assert "Session " in why
    is_seen = hang == "reset" or mode == "async"
    what = "a step"
    if is_seen:
        what = f"the {hang} of copy 1"
    assert f" hangs: {what} has not ended for 5 s; see meta.{hang}_seconds" in why


@pytest.mark.parametrize("mode", ["independent", "actor_learner"])
def test_an_evaluation_has_the_same_limits(tmp_path, mode):
    done = train(
        tmp_path,
        mode,
        env={"hang": "step"},
        rigorous_eval=2,
        eval_frequency=10,
        max_session=1,
    )
    assert done.code == 1
    assert "a step has not ended for 5 s; see meta.step_seconds" in done.err
