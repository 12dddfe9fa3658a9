"""Arguments that reach an environment or a wrapper, whatever their names, and options
of resets."""

import json

import gymnasium
import numpy as np
import pytest

from slm_lab.core.errors import LabError
from slm_lab.env.adapter import PolicyAdapter
from slm_lab.env.make import describe_spaces
from slm_lab.spec.load import load_spec, parse_spec
from slm_lab.spec.schema.env import EnvSpec
from tests.support import ppo

SPACE = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
OWN_OF_MAKE = ["id", "max_episode_steps", "disable_env_checker"]
CALLED_LIKE_THE_LAB = [
    *EnvSpec.model_fields,
    *OWN_OF_MAKE,
    "autoreset_mode",
    "vector_kwargs",
]


class Named(gymnasium.Env):
    """Keeps its arguments."""

    observation_space = SPACE
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, **given):
        self.given = given

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, True, False, {}


class Goal(Named):
    """Its episodes end after as many steps as `options` say."""

    def reset(self, *, seed=None, options=None):
        self.left = options["steps"]
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(1, np.float32), 1.0, self.left <= 0, False, {}


class Noted(gymnasium.Wrapper):
    """A wrapper with an argument called like its entry's own key."""

    def __init__(self, env, name):
        super().__init__(env)
        self.note = name


@pytest.mark.parametrize("key", CALLED_LIKE_THE_LAB)
def test_an_argument_in_kwargs_reaches_the_environment_whatever_its_name(
    build, registered, key
):
    env = build(registered("Named-v0", entry_point=Named), kwargs={key: "mine"})
    assert [each.unwrapped.given for each in env.raw.envs] == [{key: "mine"}] * 3


def test_keys_beside_kwargs_stay_those_of_the_lab(build, registered):
    name = registered("Named-v0", entry_point=Named)
    kwargs = {"name": "mine", "num_envs": 7, "max_t": 9, "size": 1}
    env = build(name, num_envs=2, max_t=5, kwargs=kwargs, speed=3)
    assert env.num_envs == 2
    assert env.raw.envs[0].unwrapped.given == {**kwargs, "speed": 3}
    assert env.raw.envs[0].unwrapped.spec.id == name


def test_arguments_come_back_from_the_recorded_spec(registered):
    registered("Named-v0", entry_point=Named)
    raw = ppo()
    raw["env"] = {"name": "Named-v0", "num_envs": 4, "max_frame": 100, "size": 1}
    raw["env"]["kwargs"] = {"name": "mine", "max_frame": 3, "depth": 2}
    spec = parse_spec("s", raw)
    again = parse_spec("s", spec.to_json())
    assert again == spec
    assert again.env.arguments == {
        "size": 1,
        "depth": 2,
        "name": "mine",
        "max_frame": 3,
    }
    old = spec.to_json()
    del old["env"]["kwargs"], old["env"]["reset_options"]
    assert parse_spec("s", old).env.arguments == {"size": 1, "depth": 2}


@pytest.mark.parametrize(
    ("typed", "size", "name"),
    [
        ("env.size=4", 4, "mine"),
        ("env.kwargs.size=4", 4, "mine"),
        ("env.kwargs.name=other", 1, "other"),
    ],
)
@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_setting_replaces_an_argument_wherever_it_stands(
    tmp_path, registered, typed, size, name, is_recorded
):
    registered("Named-v0", entry_point=Named)
    raw = ppo()
    kwargs = {"name": "mine", "size": 1}
    raw["env"] = {"name": "Named-v0", "num_envs": 4, "max_frame": 100, "kwargs": kwargs}
    file = tmp_path / "spec.json"
    content = raw
    if is_recorded:
        content = parse_spec("s", raw).to_json()
    file.write_text(json.dumps({"s": content}))
    spec = load_spec(file, "s", [typed])
    assert spec.env.arguments == {"size": size, "name": name}
    assert spec.env.name == "Named-v0"


def test_two_values_for_one_argument_are_refused():
    with pytest.raises(ValueError, match=r"env.kwargs makes it 2; keep one of the two"):
        EnvSpec(name="Named-v0", max_frame=1, size=1, kwargs={"size": 2})


def test_a_key_of_the_lab_in_kwargs_that_the_environment_lacks_is_refused(
    assert_refused,
):
    refused = "env.kwargs.max_t = 9: …did you mean env.max_t, beside kwargs?"
    assert_refused("CartPole-v1", refused, kwargs={"max_t": 9})


@pytest.mark.parametrize("key", ["num_envs", "max_episode_steps"])
def test_an_argument_of_a_native_version_that_the_lab_sets_is_no_argument(
    assert_refused, build, key
):
    keys = {"kwargs": {key: 9}, "vectorization_mode": "native"}
    where = "env.kwargs.num_envs"
    if key != "num_envs":
        where = f"env.{key}"
    assert_refused("CartPole-v1", f"{where} = 9: …does not accept it", **keys)


def test_an_agents_environment_takes_any_argument(env_spec, registered):
    adapter = PolicyAdapter(env_spec(registered("Named-v0", entry_point=Named), size=1))
    env = adapter.make_env(name="mine", num_envs=5, size=2)
    assert env.unwrapped.given == {"name": "mine", "num_envs": 5, "size": 2}


def test_a_wrapper_takes_an_argument_called_name(build, registered):
    name = registered("Named-v0", entry_point=Named)
    wrapper = {"name": f"{__name__}:Noted", "kwargs": {"name": "mine"}}
    assert build(name, wrappers=[wrapper]).raw.envs[0].note == "mine"


@pytest.mark.parametrize(
    "mode", ["sync", pytest.param("async", marks=pytest.mark.medium)]
)
def test_every_reset_gets_the_options_of_the_spec(build, registered, mode):
    name = registered("Goal-v0", entry_point=Goal)
    env = build(name, reset_options={"steps": 3}, vectorization_mode=mode)
    env.reset()
    ends = [env.step(np.zeros(3, np.int64)).terminated.all() for _ in range(9)]
    assert ends == [False, False, True] * 3


def test_an_agents_environment_has_the_options_unless_it_is_reset_with_others(
    env_spec, registered
):
    adapter = PolicyAdapter(
        env_spec(registered("Goal-v0", entry_point=Goal), reset_options={"steps": 3})
    )
    env = adapter.make_env()
    env.reset()
    assert env.unwrapped.left == 3
    env.reset(options={"steps": 5})
    assert env.unwrapped.left == 5


def test_a_reset_that_needs_options_is_told_the_key(build, registered):
    env = build(registered("Goal-v0", entry_point=Goal))
    message = (
        r"reset\(\) is called with options=None, .* not subscriptable\); .* "
        "env.reset_options"
    )
    with pytest.raises(LabError, match=message):
        env.reset()


def test_options_need_environments_that_are_made_one_by_one(build):
    assert describe_spaces(
        EnvSpec(name="CartPole-v1", max_frame=9, reset_options={"low": -0.1})
    )
    env = build("CartPole-v1", reset_options={"low": 0.02, "high": 0.03})
    assert 0.02 <= env.reset().min() <= env.reset().max() <= 0.03
    with pytest.raises(
        ValueError, match='cannot be used with reset_options; use "sync"'
    ):
        build("CartPole-v1", reset_options={"low": 0.0}, vectorization_mode="native")


def test_a_key_of_the_environment_that_is_one_of_make_is_checked(
    assert_refused, registered
):
    class Strict(Named):
        def __init__(self, max_episode_steps: int = 5):
            pass

    name = registered("Strict-v0", entry_point=Strict)
    assert_refused(name, kwargs={"max_episode_steps": 9})
    assert_refused(name, "env.max_episode_steps = 'x': must be", max_episode_steps="x")


def test_arguments_that_are_no_block_are_refused():
    with pytest.raises(ValueError, match="must be a block"):
        EnvSpec(name="Named-v0", max_frame=1, kwargs=3)
