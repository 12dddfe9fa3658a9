"""The rollout memory against a plain list of transitions."""

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given, settings
from numpy.testing import assert_array_equal

from slm_lab.agent.memory.on_policy import OnPolicyBatchReplay
from tests.support import memory_layout
from tests.unit.agent.stream import NUM_ENVS, fill

HORIZON = 6


def memory() -> OnPolicyBatchReplay:
    layout = memory_layout((2,), horizon=HORIZON, num_envs=NUM_ENVS)
    return OnPolicyBatchReplay(layout)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50)
def test_a_rollout_holds_what_was_added(seed):
    store = memory()
    for round_ in range(2):  # the second round must not see the first
        kept = fill(store.add, seed + round_, HORIZON)
        assert store.ready()
        rollout = store.take()
        for name in ("obs", "action", "reward", "terminated", "truncated"):
            expected = [[getattr(step, name) for step in steps] for steps in kept]
            assert_array_equal(getattr(rollout, name), expected)
        assert torch.equal(rollout.value, rollout.obs[..., 0])


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50)
def test_next_values_are_those_of_the_states_that_steps_ended_in(seed):
    store = memory()
    kept = fill(store.add, seed, HORIZON)
    assert_next_values(store.take(), kept)


def assert_next_values(rollout, kept):
    """Of the steps in the list, the first of the rollout."""
    next_value = rollout.next_value(rollout.bootstrap_obs[:, 0])
    for t, steps in enumerate(kept):
        for n, step in enumerate(steps):
            if not step.terminated:
                assert next_value[t, n].item() == step.next_obs[0]


def test_it_is_ready_only_when_full():
    store = memory()
    fill(store.add, 0, HORIZON - 1)
    assert not store.ready()


@given(seed=st.integers(0, 1000), steps=st.integers(1, HORIZON))
@settings(max_examples=30)
def test_breaking_off_truncates_what_was_running(seed, steps):
    """As if the last step had been truncated; the rest of the rollout is of other
    episodes."""
    store = memory()
    kept = fill(store.add, seed, steps)
    store.break_off(np.stack([step.next_obs for step in kept[-1]]))
    fill(store.add, seed + 1, HORIZON - steps)
    rollout = store.take()
    assert rollout.done[steps - 1].all()
    assert_next_values(rollout, kept)
