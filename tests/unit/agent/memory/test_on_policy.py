"""The rollout memory against a plain list of transitions."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from slm_lab.agent.batch import Act, VectorStep
from slm_lab.agent.memory.on_policy import OnPolicyBatchReplay
from tests.support import memory_layout

HORIZON = 6
NUM_ENVS = 3


def memory() -> OnPolicyBatchReplay:
    layout = memory_layout((2,), horizon=HORIZON, num_envs=NUM_ENVS)
    return OnPolicyBatchReplay(layout)


def fill(store: OnPolicyBatchReplay, seed: int, steps: int = HORIZON) -> list[dict]:
    """Random steps with random endings, in buffers that are overwritten afterwards."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(NUM_ENVS, 2)).astype(np.float32)
    kept = []
    for t in range(steps):
        terminated = rng.random(NUM_ENVS) < 0.2
        truncated = rng.random(NUM_ENVS) < 0.2
        done = terminated | truncated
        next_obs = rng.normal(size=(NUM_ENVS, 2)).astype(np.float32)
        act = Act(
            rng.integers(0, 4, NUM_ENVS),
            rng.normal(size=NUM_ENVS).astype(np.float32),
            obs[:, 0].copy(),  # a value that identifies its state
            t,
        )
        reward = rng.normal(size=NUM_ENVS).astype(np.float32)
        kept.append(
            {
                "obs": obs.copy(),
                "next_obs": next_obs.copy(),
                "action": act.action.copy(),
                "value": act.value.copy(),
                "reward": reward.copy(),
                "terminated": terminated.copy(),
                "truncated": truncated.copy(),
            }
        )
        store.add(
            VectorStep(
                obs=obs,
                act=act,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_obs=next_obs,
            )
        )
        following = np.where(done[:, None], rng.normal(size=(NUM_ENVS, 2)), next_obs)
        for buffer in (obs, next_obs, reward, act.action, act.value):
            buffer[:] = 99
        obs = following.astype(np.float32)
    return kept


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50)
def test_a_rollout_holds_what_was_added(seed):
    store = memory()
    for round_ in range(2):  # the second round must not see the first
        kept = fill(store, seed + round_)
        assert store.ready()
        rollout = store.take()
        for name in ("obs", "action", "value", "reward", "terminated", "truncated"):
            expected = np.stack([step[name] for step in kept])
            np.testing.assert_array_equal(getattr(rollout, name).numpy(), expected)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50)
def test_next_values_are_those_of_the_states_that_steps_ended_in(seed):
    store = memory()
    kept = fill(store, seed)
    rollout = store.take()
    next_value = rollout.next_value(rollout.bootstrap_obs[:, 0])
    for t, step in enumerate(kept):
        for n in range(NUM_ENVS):
            if not step["terminated"][n]:
                assert next_value[t, n].item() == step["next_obs"][n, 0]


def test_it_is_ready_only_when_full():
    store = memory()
    fill(store, 0, HORIZON - 1)
    assert not store.ready()


@given(seed=st.integers(0, 1000), steps=st.integers(1, HORIZON))
@settings(max_examples=30)
def test_breaking_off_truncates_what_was_running(seed, steps):
    """As if the last step had been truncated; the rest of the rollout is of other
    episodes."""
    store = memory()
    kept = fill(store, seed, steps)
    last = kept[-1]
    store.break_off(last["next_obs"])
    fill(store, seed + 1, HORIZON - steps)
    rollout = store.take()
    assert rollout.done[steps - 1].all()
    next_value = rollout.next_value(rollout.bootstrap_obs[:, 0])
    for n in range(NUM_ENVS):
        if not last["terminated"][n]:
            assert next_value[steps - 1, n].item() == last["next_obs"][n, 0]
