"""The sum tree against a plain list."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slm_lab.agent.memory.sampler import SumTree

PRIORITY = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
OPERATIONS = st.one_of(
    st.tuples(
        st.just("set"),
        st.lists(st.tuples(st.integers(0, 10**6), PRIORITY), min_size=1, max_size=40),
    ),
    st.tuples(st.just("set all to"), PRIORITY),
    st.tuples(st.just("rebuild"), st.integers(0, 10**6)),
    st.tuples(
        st.just("find"), st.lists(st.floats(0, 1, exclude_max=True), max_size=20)
    ),
)


@given(st.integers(1, 70), st.lists(OPERATIONS, max_size=12))
@settings(deadline=None, max_examples=200)
def test_any_operations_in_any_order_equal_those_on_the_list(size, operations):
    """Sums are read in between or not at all, with many leaves or few at a time."""
    tree = SumTree(size)
    plain = np.zeros(size)
    for name, argument in [*operations, ("find", [0.0, 0.3, 0.999])]:
        if name == "set":
            index = np.array([i % size for i, _ in argument])
            tree.set(index, np.array([p for _, p in argument]))
            for i, (_, priority) in zip(index, argument, strict=True):
                plain[i] = priority
        elif name == "set all to":
            tree.set(np.arange(size), argument)
            plain[:] = argument
        elif name == "rebuild":
            plain = np.random.default_rng(argument).random(size)
            tree.priorities[:] = plain
            tree.rebuild()
        else:
            agrees_with(tree, plain, np.array(argument))
    np.testing.assert_array_equal(tree.priorities, plain)


def agrees_with(tree, plain, share):
    """The total, and what is found at these shares of it."""
    assert tree.total == pytest.approx(plain.sum(), rel=1e-12)
    if plain.sum() == 0:
        return
    mass = share * tree.total
    ends = np.cumsum(plain)
    slack = 1e-12 * plain.sum()
    for m, found in zip(mass, tree.find(mass), strict=True):
        assert plain[found] > 0
        assert ends[found] - plain[found] - slack <= m <= ends[found] + slack


def test_draws_at_the_very_end_of_the_mass_find_a_leaf_that_has_some():
    tree = SumTree(5)
    tree.set(np.arange(5), np.array([0.1, 0.2, 0.3, 0.0, 0.0]))
    assert tree.find(
        np.array([0.0, np.nextafter(tree.total, 0), tree.total])
    ).tolist() == [0, 2, 2]
