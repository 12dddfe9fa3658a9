"""`env.info_keys`: the numbers of the last info of an episode."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from slm_lab.env.adapter import PolicyAdapter
from tests.support import ppo
from tests.unit.env.wrapped import Ends
from tests.unit.spec.problems import assert_problem

HERE = "tests.unit.env.wrapped"
KEYS = ("is_success", "episode.extras.length", "odd", "at_three", "word", "absent")


@pytest.fixture
def ends(registered):
    return registered("Ends-v0", f"{HERE}:Ends")


def episodes(env, count, seed=0):
    """The length and the numbers of the last info of every episode that ended in
    `count` steps."""
    env.reset()
    found = []
    for action in np.random.default_rng(seed).integers(0, 2, (count, env.num_envs)):
        finished = env.step(action).finished
        if finished is not None:
            found += [np.column_stack(finished)]
    return np.concatenate(found)


def expected(length):
    odd = {0: 1.5, 5: 2.5}.get(length % 6, np.nan)
    return length % 2 == 0, length, odd, 0.5 if length == 3 else np.nan, np.nan, np.nan


@pytest.mark.medium
@pytest.mark.parametrize("mode", [None, "sync", "async"])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_an_episode_ends_with_the_numbers_of_its_last_info(build, ends, mode, num_envs):
    env = build(
        ends, 3, num_envs=num_envs, vectorization_mode=mode, info_keys=list(KEYS)
    )
    assert env.num_info == len(KEYS)
    found = episodes(env, 120)
    assert set(found[:, 2]) == {2, 3, 4, 5, 6}
    assert_array_equal(found[:, 3:], [expected(length) for length in found[:, 2]])


def test_without_keys_an_episode_has_no_numbers_and_a_native_version_is_used(
    build, ends
):
    env = build(ends)
    assert env.num_info == 0
    assert episodes(env, 20).shape[1] == 3
    native = build("CartPole-v1")
    assert not hasattr(native.raw, "envs")
    assert episodes(native, 60).shape[1] == 3


def test_an_environment_without_infos_has_no_numbers(build):
    found = episodes(build("CartPole-v1", info_keys=["is_success"]), 60)
    assert len(found) > 3
    assert np.isnan(found[:, 3]).all()


def test_a_key_with_dots_is_looked_up_as_it_is_first(build, registered):
    class Dotted(Ends):
        def step(self, action):
            *rest, _ = super().step(action)
            return *rest, {
                "TimeLimit.truncated": True,
                "TimeLimit": {"truncated": False},
            }

    env = build(registered("Dotted-v0", Dotted), info_keys=["TimeLimit.truncated"])
    assert (episodes(env, 20)[:, 3] == 1).all()


def test_an_environment_outside_of_training_has_its_own_infos_only(env_spec, ends):
    env = PolicyAdapter(env_spec(ends, info_keys=["is_success"])).make_env()
    env.reset(seed=0)
    while True:
        *_, terminated, _, info = env.step(0)
        if terminated:
            break
    assert set(info) <= {"word", "episode", "is_success", "odd", "at_three"}


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            {"info_keys": ["a", "b", "a"]},
            'env.info_keys = …: "a" names no column: each must differ…',
        ),
        ({"info_keys": [""]}, 'env.info_keys = …: "" names no column'),
        ({"info_keys": [" "]}, 'env.info_keys = …: " " names no column'),
        ({"info_keys": ["a,b"]}, 'env.info_keys = …: "a,b" names no column'),
        ({"info_keys": ["a\nb"]}, "env.info_keys = …"),
        ({"info_keys": ["a" * 61]}, "env.info_keys = …"),
        ({"info_keys": "is_success"}, "env.info_keys = 'is_success': must be a list"),
        ({"info_keys": [1]}, "env.info_keys.0 = 1: must be a string"),
        (
            {"info_keys": ["a"], "vectorization_mode": "native"},
            'env.vectorization_mode = …: cannot be used with info_keys; use "sync"',
        ),
        (
            {"info_keys": ["a"], "backend": "envpool"},
            'env.backend = …: cannot be used with info_keys; use "gymnasium"',
        ),
        ({"info_keys": ["loss", "frame", "metrics/x", "a b", "é"]}, None),
    ],
    ids=str,
)
def test_keys_that_name_no_columns_are_refused(keys, problem):
    raw = ppo()
    raw["env"] |= keys
    assert_problem(raw, problem)
