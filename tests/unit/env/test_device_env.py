"""Environments on a device against the same ones in arrays on the host."""

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from slm_lab.core.errors import CheckpointError
from slm_lab.env.device_env import STEPS_PER_READ, make_device_env
from slm_lab.env.make import make_env
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.testing.play import same, saved

ENVS = {
    "numbers": {"name": "CartPole-v1"},
    "boxes": {"name": "Pendulum-v1", "max_t": 20},
    "scaled": {"name": "Pendulum-v1", "max_t": 20, "reward_scale": 0.1},
    "clipped": {"name": "Pendulum-v1", "max_t": 20, "clip_reward": 1.0},
    "signs": {"name": "Pendulum-v1", "reward_scale": "sign", "clip_reward": "sign"},
}
STEPS = 3 * STEPS_PER_READ


@pytest.fixture
def pair(env_spec):
    """An environment on the host, and the same on a device."""

    def make(num_envs=3, seed=0, **keys):
        spec = env_spec(backend="torch", num_envs=num_envs, **keys)
        return make_env(spec, seed), make_device_env(spec, seed, "cpu")

    return make


def tensors(step):
    """All of a step but the episodes it ended."""
    return [torch.as_tensor(value) for value in step[:5]]


def actions_of(env, count, seed=0):
    rng = np.random.default_rng(seed)
    space = env.action_space
    for _ in range(count):
        if space.shape:
            yield rng.uniform(-1.5, 1.5, (env.num_envs, 1)).astype(np.float32)
        else:
            yield rng.integers(0, space.n, env.num_envs)


@pytest.mark.parametrize("keys", ENVS.values(), ids=ENVS)
def test_every_step_equals_that_on_the_host_bit_for_bit(pair, keys):
    host, device = pair(**keys)
    assert device.observation_space == host.observation_space
    assert device.action_space == host.action_space
    assert_array_equal(device.reset(), host.reset(), strict=False)
    for action in actions_of(host, STEPS):
        expected = host.step(action)
        step = device.step(torch.from_numpy(action))
        for ours, theirs in zip(tensors(step), tensors(expected), strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("keys", ENVS.values(), ids=ENVS)
def test_the_episodes_are_those_of_the_host_read_together(pair, keys):
    host, device = pair(**keys)
    host.reset()
    device.reset()
    expected, read, times = [], [], []
    for t, action in enumerate(actions_of(host, STEPS)):
        step = host.step(action)
        if step.finished is not None:
            expected.append(step.finished)
        finished = device.step(torch.from_numpy(action)).finished
        if finished is not None:
            read.append(finished)
            times.append(t)
    for field in FinishedEpisodes._fields:
        ours, theirs = (
            [getattr(part, field) for part in parts] for parts in (read, expected)
        )
        assert len(ours) == len(theirs) == 0 or same(
            np.concatenate(ours), np.concatenate(theirs)
        )
    assert all(t % STEPS_PER_READ == STEPS_PER_READ - 1 for t in times)


@pytest.mark.parametrize("before", [0, 5, STEPS_PER_READ + 7])
def test_a_restored_one_continues_bit_for_bit(pair, before):
    _, env = pair(name="CartPole-v1")
    _, other = pair(name="CartPole-v1", seed=1)
    env.reset()
    for action in actions_of(env, before):
        env.step(torch.from_numpy(action))
    state = saved(env.state_dict())
    assert other.load_state_dict(copy.deepcopy(state))
    assert torch.equal(other.obs, env.obs)
    for action in actions_of(env, 2 * STEPS_PER_READ, seed=1):
        step, again = (e.step(torch.from_numpy(action)) for e in (env, other))
        assert all(map(torch.equal, tensors(step), tensors(again)))
        assert same(step.finished, again.finished)
    assert not same(state, env.state_dict())


@pytest.mark.parametrize("to_device", [True, False])
def test_host_and_device_restore_each_others_states(pair, to_device):
    first, _ = pair(name="Pendulum-v1", max_t=9)[:: 1 if to_device else -1]
    _, second = pair(name="Pendulum-v1", max_t=9, seed=1)[:: 1 if to_device else -1]
    takes = {True: torch.from_numpy, False: np.asarray}
    first.reset()
    for action in actions_of(first, 5):
        first.step(takes[not to_device](action))
    assert second.load_state_dict(saved(first.state_dict()))
    for action in actions_of(first, 12):
        step = first.step(takes[not to_device](action))
        again = second.step(takes[to_device](action))
        assert all(map(torch.equal, tensors(step), tensors(again)))


def test_a_state_of_another_number_of_environments_does_not_fit(pair):
    _, env = pair(name="CartPole-v1")
    _, other = pair(name="CartPole-v1", num_envs=4)
    env.reset()
    with pytest.raises(CheckpointError, match="of 3 environments, not of 4"):
        other.load_state_dict(env.state_dict())


@pytest.mark.parametrize(
    "keys",
    [
        {"normalize_obs": True},
        {"normalize_reward": True},
        {"frame_op": "concat", "frame_op_len": 2},
        {"backend": "gymnasium"},
        {"vectorization_mode": "sync"},
    ],
    ids=lambda keys: next(iter(keys)),
)
def test_what_needs_the_host_stays_there(env_spec, keys):
    spec = env_spec("CartPole-v1", **{"backend": "torch", **keys})
    assert make_device_env(spec, 0, "cpu") is None
