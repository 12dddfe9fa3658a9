"""The lab's wrappers: Gymnasium makes an environment in them again from its spec, and
checks it."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from slm_lab.env.adapter import PolicyAdapter
from slm_lab.env.make import EnvFactory

KINDS = {
    "a Tuple": spaces.Tuple(
        (spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3))
    ),
    "a Dict": spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,), np.float32)}),
    "one image": spaces.Dict({"a": spaces.Box(0, 255, (8, 8, 3), np.uint8)}),
    "a Box": spaces.Box(-1.0, 1.0, (2,), np.float32),
}
KEYS = [
    {},
    {"max_t": 3},
    {"info_keys": ("steps",)},
    {"reset_options": {"start": 2}},
    {
        "max_t": 4,
        "info_keys": ("steps",),
        "reset_options": {"start": 2},
        "kwargs": {"name": "x"},
    },
]


class Counting(gymnasium.Env):
    """Draws observations of its space; its infos count steps, from `options` on."""

    action_space = spaces.Discrete(2)

    def __init__(self, kind, name="n", render_mode=None):
        self.observation_space = KINDS[kind]
        self.name = name
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = (options or {}).get("start", 0)
        return self.observation_space.sample(), {"steps": self.steps}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), 1.0, False, False, {"steps": self.steps}


def played(env):
    """What an episode of at most 9 steps shows."""
    env.reset(seed=3)
    seen = []
    for _ in range(9):
        obs, _, _, truncated, info = env.step(0)
        seen.append((str(obs), truncated, sorted(info)))
        if truncated:
            break
    return seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keys", KEYS, ids=str)
def test_an_environment_in_wrappers_of_the_lab_is_made_again_from_its_spec(
    env_spec, registered, kind, keys
):
    name = registered(
        "Counting-v0", Counting, kwargs={"kind": kind}, max_episode_steps=6
    )
    env = EnvFactory.of(env_spec(name, **keys)).make_single()
    again = gymnasium.make(env.spec)
    assert str(again) == str(env)
    assert again.observation_space == env.observation_space
    assert again.unwrapped.name == env.unwrapped.name
    assert played(again) == played(env)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keys", KEYS, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_gymnasiums_check_accepts_an_agents_environment(
    env_spec, registered, kind, keys
):
    name = registered("Counting-v0", Counting, kwargs={"kind": kind})
    spec = env_spec(name, **keys)
    for env in (PolicyAdapter(spec).make_env(), EnvFactory.of(spec).make_single()):
        check_env(env, skip_render_check=True)


def test_a_game_is_made_again_from_its_spec(env_spec):
    pytest.importorskip("ale_py")
    env = EnvFactory.of(env_spec("ALE/Pong-v5", stack_num=3)).make_single()
    again = gymnasium.make(env.spec)
    assert str(again) == str(env)
    assert again.observation_space == env.observation_space
