"""A sent unroll arrives unchanged, in writable memory."""

import pickle
from dataclasses import fields

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from slm_lab.parallel.actor_learner.unroll import Unroll, UnrollLayout, packed, unpacked
from tests.support import memory_layout

T = 5
K = 3
STEPS = memory_layout((2,), horizon=T, num_envs=K)


@pytest.fixture
def unroll():
    """One in which episodes have ended in the middle and in the last step."""
    random = np.random.default_rng(0)
    content = random.integers(0, 256, UnrollLayout(STEPS, 4).record.itemsize).astype(
        np.uint8
    )
    unroll = Unroll.within(content, UnrollLayout(STEPS, 4))
    unroll.terminated[:] = False
    unroll.truncated[:] = False
    unroll.terminated[1, 0] = unroll.truncated[3, 2] = unroll.terminated[T - 1, 1] = (
        True
    )
    return unroll


def read_only(arrays):
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def test_every_step_arrives_unchanged(unroll):
    received = unpacked(read_only(pickle.loads(pickle.dumps(packed(unroll)))))
    for field in fields(unroll):
        if field.name != "end_obs":
            given = getattr(unroll, field.name)
            got = getattr(received, field.name)
            assert_array_equal(given, got)
    for t in range(T):
        assert_array_equal(unroll.step(t)[5], received.step(t)[5])


def test_a_received_unroll_owns_its_memory(unroll):
    arrays = read_only(packed(unroll))
    received = unpacked(arrays)
    for field in fields(unroll):
        array = getattr(received, field.name)
        assert array.flags.writeable
        assert not np.shares_memory(array, arrays[field.name])


def test_only_final_observations_that_exist_are_packed(unroll):
    assert packed(unroll)["end_obs"].shape == (2, 2)
    before = unroll.terminated.copy()
    packed(unroll)
    assert_array_equal(unroll.terminated, before)
