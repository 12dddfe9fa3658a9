"""Classic control by torch against Gymnasium's single environments."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from numpy.testing import assert_allclose, assert_array_equal

from slm_lab.env.make import make_env
from slm_lab.env.simulators.classic_control import (
    Acrobot,
    CartPole,
    MountainCar,
    MountainCarContinuous,
    Pendulum,
)
from slm_lab.env.simulators.torch_envs import BatchedEnvs
from slm_lab.env.versions import env_record

PI = np.pi
ROWS = {
    "CartPole-v1": (CartPole, [(-2.5, 2.5), (-4, 4), (-0.22, 0.22), (-4, 4)]),
    "Pendulum-v1": (Pendulum, [(-10, 10), (-8, 8)]),
    "Acrobot-v1": (
        Acrobot,
        [(-PI, PI), (-PI, PI), (-4 * PI, 4 * PI), (-9 * PI, 9 * PI)],
    ),
    "MountainCar-v0": (MountainCar, [(-1.2, 0.6), (-0.07, 0.07)]),
    "MountainCarContinuous-v0": (
        MountainCarContinuous,
        [(-1.2, 0.6), (-0.07, 0.07)],
    ),
}
"""The dynamics, and the bounds of the states to step from. The ends of an episode and
the walls lie within them."""

ARGUMENTS = {
    "CartPole-v1": {"sutton_barto_reward": True},
    "Pendulum-v1": {"g": 9.81},
    "MountainCar-v0": {"goal_velocity": 0.04},
    "MountainCarContinuous-v0": {"goal_velocity": 0.04},
}
STATES = 10_000


def copies(dynamics, num_envs, seed=0, limit=None):
    """Copies on the CPU, without spaces."""
    return BatchedEnvs(dynamics, num_envs, seed, limit, "cpu", None, None)


def random_actions(space, rng, count):
    if isinstance(space, Discrete):
        return rng.integers(0, space.n, count)
    return rng.uniform(-2.5, 2.5, (count, 1)).astype(np.float32)


@pytest.mark.parametrize("given", [{}, ARGUMENTS], ids=["default", "arguments"])
@pytest.mark.parametrize("name", ROWS)
def test_one_step_from_random_states_equals_gymnasium(name, given):
    arguments = given.get(name, {})
    kind, bounds = ROWS[name]
    single = gymnasium.make(name, **arguments).unwrapped
    rng = np.random.default_rng(0)
    low, high = np.array(bounds).T
    states = rng.uniform(low, high, (STATES, len(bounds)))
    if kind is MountainCarContinuous:  # Gymnasium keeps its states in float32
        states = states.astype(np.float32)
    actions = random_actions(single.action_space, rng, STATES)
    dynamics = kind(**arguments)
    motion = dynamics.step(
        torch.from_numpy(states.T.astype(np.float64)), torch.from_numpy(actions)
    )
    expected = []
    for state, action in zip(states, actions, strict=True):
        single.reset()
        single.state = state.copy()
        expected.append(single.step(action)[:3])
    obs, reward, terminated = zip(*expected, strict=True)
    assert_allclose(dynamics.observe(motion.state), np.stack(obs), rtol=0, atol=1e-6)
    assert_allclose(motion.reward, np.array(reward, float), rtol=0, atol=1e-6)
    assert_array_equal(motion.terminated, terminated)
    assert any(terminated) == (kind is not Pendulum)
    assert not all(terminated)


@pytest.mark.parametrize("name", ROWS)
def test_whole_episodes_follow_gymnasium_up_to_their_ends(name):
    kind, _ = ROWS[name]
    limit = 30
    single = gymnasium.make(name, max_episode_steps=limit)
    envs = copies(kind(), 3, limit=limit)
    rng = np.random.default_rng(1)
    envs.reset()
    ended = 0
    for _ in range(10):
        single.reset()
        single.unwrapped.state = envs.state_dict()["state"][:, 1].numpy().copy()
        over = False
        while not over:
            actions = random_actions(single.action_space, rng, 3)
            step = envs.step(torch.from_numpy(actions))
            obs, reward, terminated, truncated, _ = single.step(actions[1])
            over = terminated or truncated
            assert_allclose(step.next_obs[1], obs, rtol=0, atol=1e-4)
            assert_allclose(step.reward[1], reward, rtol=0, atol=1e-4)
            assert step.terminated[1] == terminated
            assert step.truncated[1] == truncated
        first = kind().observe(envs.state_dict()["state"])[1]
        assert_array_equal(step.obs[1], first)
        ended += 1
    assert ended == 10


@pytest.mark.parametrize("name", ROWS)
def test_first_states_have_the_distribution_of_gymnasium(name):
    kind, _ = ROWS[name]
    single = gymnasium.make(name)
    expected = np.array([single.reset(seed=seed)[0] for seed in range(2000)])
    obs = copies(kind(), 2000).reset().numpy()
    assert_allclose(obs.min(0), expected.min(0), atol=0.02)
    assert_allclose(obs.max(0), expected.max(0), atol=0.02)
    assert_allclose(obs.mean(0), expected.mean(0), atol=0.06)


def test_without_a_limit_no_episode_is_truncated():
    envs = copies(Pendulum(), 2)
    envs.reset()
    for _ in range(300):
        assert not envs.step(torch.zeros(2, 1)).truncated.any()


def test_the_limit_of_gymnasium_and_max_t_truncate(build):
    for keys, length in (({}, 200), ({"max_t": 7}, 7)):
        env = build("Pendulum-v1", backend="torch", **keys)
        env.reset()
        steps = [env.step(np.zeros((3, 1), np.float32)) for _ in range(length)]
        assert [step.truncated.all() for step in steps] == [False] * (length - 1) + [
            True
        ]
        assert steps[-1].finished.episode_length.tolist() == [length] * 3


def test_the_spaces_and_the_arguments_are_those_of_gymnasium(build):
    ours = build("Pendulum-v1", backend="torch", g=1.0)
    single = build("Pendulum-v1", g=1.0)
    assert ours.observation_space == single.observation_space
    assert ours.action_space == single.action_space
    ours.reset()
    assert ours.raw.envs._dynamics == Pendulum(g=1.0)


@pytest.mark.parametrize(
    ("name", "keys", "problem"),
    [
        (
            "Blackjack-v1",
            {},
            "env.backend = 'torch': torch has CartPole, Pendulum, Acrobot, "
            "MountainCar, MountainCarContinuous, and no Blackjack-v1; use "
            '"gymnasium"',
        ),
        (
            "CartPole-v1",
            {"render_mode": "rgb_array"},
            "env.render_mode = 'rgb_array': torch draws nothing; leave it out, or use "
            'env.backend "gymnasium"',
        ),
        ("Pendulum-v1", {"gravity": 9.0}, "env.gravity = 9.0: …"),
    ],
)
def test_what_torch_does_not_have_is_refused_in_one_line(
    assert_refused, name, keys, problem
):
    assert_refused(name, problem, backend="torch", **keys)


def test_wrappers_need_single_environments(env_spec):
    wrapper = "gymnasium.wrappers:TimeAwareObservation"
    with pytest.raises(ValueError, match='cannot be used with wrappers; use "gymnasi'):
        env_spec("CartPole-v1", backend="torch", wrappers=[wrapper])


def test_an_action_that_does_not_exist_is_refused(build):
    env = build("CartPole-v1", backend="torch")
    env.reset()
    with pytest.raises(IndexError, match="there are 2 actions"):
        env.step(np.full(3, 2))


def test_one_by_one_the_environments_are_those_of_gymnasium(env_spec):
    together = env_spec("CartPole-v1", backend="torch")
    apart = env_spec("CartPole-v1", backend="torch", vectorization_mode="sync")
    assert env_record(together)["backend"] == "torch"
    assert env_record(apart)["backend"] == "gymnasium"


def test_the_state_of_another_device_continues_with_new_first_states():
    envs = copies(CartPole(), 4)
    envs.reset()
    state = envs.state_dict()
    other = copies(CartPole(), 4, seed=1)
    other.load_state_dict({**state, "device": "cuda", "generator": None})
    action = torch.ones(4, dtype=torch.int64)
    assert_array_equal(other.step(action).next_obs, envs.step(action).next_obs)


def test_other_environments_do_without_torch():
    code = """
import sys
from slm_lab.env.make import make_env
from slm_lab.spec.schema.env import EnvSpec
make_env(EnvSpec(name="CartPole-v1", max_frame=1), 0).reset()
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_seeds_decide_the_first_states(env_spec):
    first, again, other = (
        make_env(env_spec("Pendulum-v1", backend="torch"), seed).reset()
        for seed in (0, 0, 1)
    )
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)
