"""The sum tree against a plain list."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.agent.memory.sum_tree import SumTree


@given(st.integers(1, 40), st.integers(0, 10_000))
def test_it_is_a_list_with_a_running_sum(size, seed):
    rng = np.random.default_rng(seed)
    tree, plain = SumTree(size), np.zeros(size)
    for _ in range(5):
        index = rng.integers(0, size, rng.integers(1, 8))
        priority = rng.random(len(index)) * (rng.random(len(index)) > 0.3)
        tree.set(index, priority)
        for i, p in zip(index, priority, strict=True):
            plain[i] = p
    np.testing.assert_array_equal(tree.priorities, plain)
    assert tree.total == pytest.approx(plain.sum(), abs=1e-12)
    if plain.sum() == 0:
        return
    mass = rng.random(50) * plain.sum()
    found = tree.find(mass)
    assert (plain[found] > 0).all()
    ends = np.cumsum(plain)
    assert (mass <= ends[found] + 1e-12).all()
    assert (mass >= ends[found] - plain[found] - 1e-12).all()


@given(st.integers(1, 40), st.integers(0, 10_000))
def test_rebuilding_equals_setting_one_by_one(size, seed):
    priorities = np.random.default_rng(seed).random(size)
    one_by_one, at_once = SumTree(size), SumTree(size)
    for index, priority in enumerate(priorities):
        one_by_one.set(np.array([index]), priority)
    at_once.rebuild(priorities)
    assert one_by_one.total == at_once.total
    np.testing.assert_array_equal(one_by_one._nodes, at_once._nodes)


def test_draws_at_the_very_end_of_the_mass_find_a_leaf_that_has_some():
    tree = SumTree(5)
    tree.set(np.arange(5), np.array([0.1, 0.2, 0.3, 0.0, 0.0]))
    assert tree.find(np.array([0.0, np.nextafter(tree.total, 0), tree.total])).tolist() == [0, 2, 2]


def test_what_is_set_a_thousand_times_without_a_question_is_not_kept_waiting():
    tree, plain = SumTree(50), np.zeros(50)
    for i in range(2500):
        tree.set(np.array([i % 50]), float(i))
        plain[i % 50] = i
    assert len(tree._waiting) < 1000
    assert tree.total == plain.sum()
