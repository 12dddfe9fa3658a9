"""Random steps for memories, and a plain list of them for comparison."""

from dataclasses import dataclass

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from slm_lab.agent.batch import Act, VectorStep
from slm_lab.agent.memory.memory import MemoryLayout, ReplayConfig, TrainingSchedule

NUM_ENVS = 3
GAMMA = 0.9
INT = np.dtype(np.int64)


def layout(
    num_steps=1,
    frequency=1,
    start=0,
    stack=1,
    scratch=None,
    num_envs=NUM_ENVS,
    **schedule,
):
    """Observations are 2 floats, or stacks of frames of 2 × 2 bytes."""
    plan = ReplayConfig(
        TrainingSchedule(frequency, start, **schedule), GAMMA, num_steps, seed=0
    )
    shape, dtype = ((2,), np.float32) if stack == 1 else ((stack, 2, 2), np.uint8)
    return MemoryLayout(
        horizon=1,
        num_envs=num_envs,
        obs_shape=shape,
        obs_dtype=np.dtype(dtype),
        action_shape=(),
        action_dtype=INT,
        replay=plan,
        frame_stack=stack,
        scratch=scratch,
    )


@dataclass
class Plain:
    """One step of one environment, as it was."""

    obs: np.ndarray
    action: int
    reward: float
    terminated: bool
    truncated: bool
    next_obs: np.ndarray


class Numbers:
    """Observations with a unique first number."""

    def __init__(self, rng, num_envs):
        self.rng = rng
        self.num_envs = num_envs
        self.unique = iter(np.arange(1, 10**6, dtype=np.float32))

    def first(self):
        return np.array(
            [[next(self.unique), self.rng.normal()] for _ in range(self.num_envs)], "f4"
        )

    def after(self, obs):
        return self.first()


class Stacks:
    """The last frames; the first stack of an episode is filled with anything."""

    def __init__(self, rng, num_envs, stack):
        self.rng = rng
        self.num_envs = num_envs
        self.stack = stack

    def first(self):
        return self.rng.integers(0, 256, (self.num_envs, self.stack, 2, 2), np.uint8)

    def after(self, obs):
        newest = self.rng.integers(0, 256, (self.num_envs, 1, 2, 2), np.uint8)
        return np.concatenate([obs[:, 1:], newest], 1)


def fill(add, seed, num_steps, stack=1, ends=0.15, num_envs=NUM_ENVS):
    """Random steps with random endings, in buffers that are overwritten afterwards. A
    value is the first number of its observation. Returns the steps (t, n) as they
    were."""
    rng = np.random.default_rng(seed)
    source = Numbers(rng, num_envs) if stack == 1 else Stacks(rng, num_envs, stack)
    obs = source.first()
    kept = []
    for _ in range(num_steps):
        terminated = rng.random(num_envs) < ends
        truncated = rng.random(num_envs) < ends
        next_obs = source.after(obs)
        reward = rng.normal(size=num_envs).astype(np.float32)
        action = rng.integers(0, 4, num_envs)
        kept.append(
            [
                Plain(
                    obs[n].copy(),
                    int(action[n]),
                    float(reward[n]),
                    bool(terminated[n]),
                    bool(truncated[n]),
                    next_obs[n].copy(),
                )
                for n in range(num_envs)
            ]
        )
        none = np.zeros(num_envs, np.float32)
        value = obs.reshape(num_envs, -1)[:, 0].astype(np.float32)
        act = Act(action, none, value, 0)
        add(
            VectorStep(
                obs=obs,
                act=act,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_obs=next_obs,
            )
        )
        done = terminated | truncated
        following = next_obs.copy()
        following[done] = source.first()[done]
        for buffer in (obs, next_obs, reward, action):
            buffer[:] = 99
        obs = following
    return kept


def expected(kept, t, n, num_steps):
    """Obs, action, n-step reward, discount and next obs of one transition, by a plain
    loop."""
    reward = 0.0
    discount = 1.0
    for step in range(t, min(t + num_steps, len(kept))):
        last = kept[step][n]
        reward += discount * last.reward
        discount *= GAMMA
        if last.terminated or last.truncated:
            break
    first = kept[t][n]
    return (
        first.obs,
        first.action,
        reward,
        0.0 if last.terminated else discount,
        last.next_obs,
    )


def assert_reads(ring, kept, num_steps):
    """Asserts that every transition of the ring equals that of the list."""
    got = ring.gather(ring.indices(np.arange(ring.num_stored)))
    first = len(kept) - ring.num_stored // ring.num_envs
    for i in range(ring.num_stored):
        assert_is(
            got, i, kept, first + i // ring.num_envs, i % ring.num_envs, num_steps
        )


def assert_is(got, i, kept, t, n, num_steps):
    """Asserts that the i-th transition of `got` equals that of the list at (t, n)."""
    obs, action, reward, discount, next_obs = expected(kept, t, n, num_steps)
    assert_array_equal(got.obs[i], obs)
    assert got.action[i] == action
    assert_allclose(got.reward[i], reward, atol=1e-5)
    assert_allclose(got.discount[i], discount, atol=1e-6)
    assert_array_equal(got.next_obs[i], next_obs)
