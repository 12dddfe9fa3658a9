"""MuJoCo environments, when MuJoCo is installed: resumed bit for bit, and silent."""

import importlib.util
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from slm_lab.env.make import log_mujoco_warnings
from slm_lab.env.state import (
    MUJOCO_CLASSES,
    has_exact_state,
    load_env_state,
    save_env_state,
)
from tests.support import needs

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mujoco") is None,
    reason="the mujoco extra is not installed",
)

NAMES = [
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
]


def entry_point(env_id):
    return gymnasium.registry[env_id].entry_point


@pytest.fixture
def make():
    made = []

    def make_one(env_id, seed, **kwargs):
        log_mujoco_warnings(gymnasium.spec(env_id))
        env = gymnasium.make(env_id, **kwargs)
        made.append(env)
        env.reset(seed=seed)
        return env

    yield make_one
    for env in made:
        env.close()


def play(env, actions):
    """Observation, reward and endings of every step, and the first observations of
    episodes."""
    rows = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        rows += [obs, reward, terminated, truncated]
        if terminated or truncated:
            rows.append(env.reset()[0])
    return rows


def actions_for(env, count, seed):
    space = env.action_space
    return np.random.default_rng(seed).uniform(
        space.low, space.high, (count, *space.shape)
    )


def test_every_environment_of_version_5_has_an_adapter():
    registered = {
        env_id
        for env_id in gymnasium.registry
        if env_id.endswith("-v5")
        and str(entry_point(env_id)).startswith("gymnasium.envs.mujoco")
    }
    assert registered == {f"{name}-v5" for name in NAMES}
    assert {entry_point(env_id) for env_id in registered} == set(MUJOCO_CLASSES)


@pytest.mark.parametrize("steps_before", [0, 120])
@pytest.mark.parametrize("name", NAMES)
def test_a_restored_simulation_continues_bit_for_bit(make, name, steps_before):
    env = make(f"{name}-v5", 1)
    restored = make(f"{name}-v5", 2)
    play(env, actions_for(env, steps_before, seed=3))
    play(restored, actions_for(env, 7, seed=4))
    load_env_state(restored, save_env_state(env))
    actions = actions_for(env, 300, seed=5)
    for expected, given in zip(
        play(env, actions), play(restored, actions), strict=True
    ):
        np.testing.assert_array_equal(given, expected, strict=True)


def test_a_subclass_has_no_adapter(make):
    from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

    class Lame(HopperEnv):
        pass

    assert has_exact_state(make("Hopper-v5", 0))
    lame = Lame()
    assert not has_exact_state(lame)
    lame.close()


@needs("mujoco", "3.4")
def test_a_model_that_keeps_more_than_the_simulation_has_no_exact_state(make):
    import mujoco

    env = make("Hopper-v5", 0)
    env.unwrapped.model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_SLEEP)
    assert not has_exact_state(env)


SCRIPT = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
from slm_lab.env.make import make_env
from slm_lab.spec.schema.env import EnvSpec
env = make_env(EnvSpec(name="HalfCheetah-v5", num_envs=1, max_frame=1), seed=0)
env.reset()
print("made")
single = env.raw.envs[0].unwrapped
single.data.qpos[:] = 1e200
single.step(single.action_space.sample())
env.close()
"""


@pytest.mark.medium
def test_warnings_of_mujoco_are_logged_and_leave_no_file(tmp_path):
    """In a separate process, because a warning changes the state of its process."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    before, after = done.stdout.split("made\n")
    assert before == ""
    assert after.startswith("WARNING MuJoCo: Nan, Inf or huge value in QPOS")
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
