"""Environments of which only so many copies can exist at once, such as one for each
port."""

import json

import pytest

from tests.faults.lab import LAB, call, command, trial_metrics, write_spec
from tests.support import ppo

PORTS = """
import fcntl, os, gymnasium, numpy as np
class Port(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 9}
    render_mode = "rgb_array"
    def __init__(self, port=0, render_mode=None):
        self.file = open(f"port_{port}", "w")
        fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 9, False, {}
    def render(self):
        return np.zeros((32, 32, 3), np.uint8)
    def close(self):
        self.file.close()
gymnasium.register("Port-v0", Port)
"""
SMALL = {
    "env__name": "Port-v0",
    "env__max_frame": 400,
    "agent__algorithm__minibatch_size": 16,
    "meta__log_frequency": 100,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ports.py").write_text(PORTS)
    return tmp_path


@pytest.mark.medium
def test_an_environment_that_exists_once_is_trained_and_evaluated(
    folder,
):
    write_spec(folder, ppo(**SMALL, env__num_envs=1))
    done = call([*command(folder, "train"), "--import", "ports"], folder)
    assert done.outcome == (0, "")
    assert trial_metrics(folder)["random_return"] == 9.0
    evaluation = [
        str(LAB),
        "run",
        "eval@latest",
        "--import",
        "ports",
        "--episodes",
        "10",
        "--json",
    ]
    done = call(evaluation, folder)
    assert done.outcome == (0, "")
    assert len(list(folder.glob("port_*"))) == 1


MODES = {
    "independent": {"max_session": 2},
    "async": {"max_session": 2},
    "shared": {"max_session": 2, "distributed": "shared"},
    "all_reduce": {"max_session": 2, "distributed": "all_reduce"},
    "actor_learner": {"max_session": 2, "distributed": "actor_learner"},
    "serial": {
        "max_session": 2,
        "distributed": "actor_learner",
        "actor_learner": {"serial": True},
    },
}
SLOW = ("shared", "all_reduce", "serial")
"""Modes that make their copies as another does."""


@pytest.mark.medium
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=pytest.mark.slow if mode in SLOW else ())
        for mode in MODES
    ],
)
def test_all_copies_of_a_run_that_exist_at_once_have_different_numbers(folder, mode):
    """A copy fails if another has its number: those that train, evaluate and are
    filmed."""
    meta = {
        "rigorous_eval": 2,
        "eval_frequency": 200,
        "record_video": 200,
        **MODES[mode],
    }
    numbered = {"env__index_key": "port", "env__num_envs": 2}
    if mode == "async":
        numbered["env__vectorization_mode"] = "async"
    spec = ppo(
        **SMALL, **numbered, **{f"meta__{key}": value for key, value in meta.items()}
    )
    write_spec(folder, spec)
    done = call([*command(folder, "train"), "--import", "ports"], folder)
    assert done.outcome == (0, "")
    assert trial_metrics(folder)["random_return"] == 9.0
    assert list(folder.rglob("*.mp4"))
    copies = len(list(folder.glob("port_*")))
    assert copies >= 2 * 2 + 2 + 1


@pytest.mark.medium
@pytest.mark.slow
def test_the_trials_of_a_search_have_different_copies(folder):
    search = {"agent.algorithm.gamma__choice": [0.9, 0.99]}
    spec = {**ppo(**SMALL, env__index_key="port", meta__max_trial=3), "search": search}
    (folder / "spec.json").write_text(json.dumps({"small": spec}))
    done = call([*command(folder, "search"), "--import", "ports"], folder)
    assert done.outcome == (0, "")
    copies = len(list(folder.glob("port_*")))
    assert copies >= 3 * 4
