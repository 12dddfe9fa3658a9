import numpy as np
import pytest
from numpy.testing import assert_array_equal

from slm_lab.env.vector.raw import env_seeds

MODES = [("CartPole-v1", None), ("CartPole-v1", "sync"), ("Pendulum-v1", "sync")]


def trajectory(env, actions):
    parts = [env.reset()]
    for action in actions:
        parts += env.step(action)[:5]
    return [np.array(part) for part in parts]


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_the_seed_decides_the_trajectory(build, random_actions, name, mode):
    envs = [build(name, seed, vectorization_mode=mode) for seed in (5, 5, 6)]
    first, same, other = [trajectory(env, random_actions(env, 60)) for env in envs]
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not np.array_equal(first[0], other[0])


@pytest.mark.medium
@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0"]
)
def test_sync_and_async_trajectories_are_equal_bit_for_bit(build, random_actions, name):
    envs = [
        build(name, 4, vectorization_mode=mode, max_t=40) for mode in ("sync", "async")
    ]
    in_process, in_workers = [trajectory(env, random_actions(env, 100)) for env in envs]
    for expected, given in zip(in_process, in_workers, strict=True):
        assert_array_equal(given, expected, strict=True)


@pytest.mark.parametrize("mode", [None, "sync"])
def test_the_environments_of_one_seed_differ_from_each_other(build, mode):
    obs = build("CartPole-v1", num_envs=16, vectorization_mode=mode).reset()
    assert len(np.unique(obs, axis=0)) == 16


def test_an_environment_keeps_its_seed_when_more_are_added():
    assert env_seeds(3, 8)[:4] == env_seeds(3, 4)
    assert len({*env_seeds(0, 1000), *env_seeds(1, 1000)}) > 1995
    assert all(0 <= seed < 2**31 for seed in env_seeds(7, 1000))
