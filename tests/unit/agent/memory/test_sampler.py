"""Which transitions of a ring are sampled, how often, and with what weight."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from slm_lab.agent.memory.sampler import PrioritizedSampler, Priority, UniformSampler
from slm_lab.agent.memory.transition_ring import TransitionRing
from slm_lab.core.schedule import Schedule
from tests.unit.agent.stream import GAMMA, NUM_ENVS, fill, layout

WHOLE = Schedule(1.0)
"""β = 1: the weights undo the whole bias."""


class Sampled:
    """A ring that was written over once, its sampler, and its indices from the
    oldest."""

    def __init__(self, kind, size=60, steps=10, **keys):
        self.ring = TransitionRing(layout(), size // NUM_ENVS, GAMMA, 1)
        keys = {"epsilon": 0.0, "beta": WHOLE, **keys}
        keys["alpha"] = Schedule(keys.get("alpha", 1.0))
        priority = [] if kind is UniformSampler else [Priority(**keys)]
        self.sampler = kind(self.ring, 0, *priority)
        self.size = size
        fill(self.add, 0, size // NUM_ENVS + steps)
        self.indices = self.ring.indices(np.arange(size))

    def add(self, step):
        self.ring.add(step)
        self.sampler.added()

    def set_errors(self, error):
        """Of all that is stored, oldest first."""
        self.sampler.update_priorities(
            torch.from_numpy(self.indices), torch.from_numpy(error)
        )
        return self

    def ages(self, indices):
        """The numbers of these from the oldest, 0; raises for what cannot be
        sampled."""
        age = np.full(self.ring.size, -1)
        age[self.indices] = np.arange(self.size)
        assert (age[indices] >= 0).all()
        return age[indices]

    def counts(self, size, batches, given=()):
        """How often each was sampled, oldest first, beside those given."""
        counts = np.zeros(self.size)
        given = np.array(given, np.int64)
        for _ in range(batches):
            indices, _ = self.sampler.sample(size, 0, given)
            assert_array_equal(indices[size - len(given) :], given)
            np.add.at(counts, self.ages(indices[: size - len(given)]), 1)
        return counts


def chi_squared(counts, priority):
    """Pearson's statistic of `counts` (K,), in units of what it reaches once in 1000
    times.

    The quantile is Wilson and Hilferty's, better than 0.1 % for so many degrees of
    freedom.
    """
    wanted = priority / priority.sum() * counts.sum()
    freedom = len(counts) - 1
    z = 3.0902
    spread = 2 / (9 * freedom)
    limit = freedom * (1 - spread + z * spread**0.5) ** 3
    return ((counts - wanted) ** 2 / wanted).sum() / limit


BOTH = pytest.mark.parametrize(
    ("kind", "keys"), [(UniformSampler, {}), (PrioritizedSampler, {"alpha": 0.0})]
)


@BOTH
@pytest.mark.parametrize("combined", [False, True])
def test_uniform_draws_reach_every_transition_alike(kind, keys, combined):
    """Also the rest of a batch that includes the newest transitions."""
    store = Sampled(kind, **keys).set_errors(np.arange(1.0, 61.0))
    counts = store.counts(12, 1000, store.ring.newest if combined else ())
    assert chi_squared(counts, np.ones(60)) < 1


def test_a_thousand_priorities_are_drawn_as_often_as_they_say():
    """Other priorities would fail, though stratified draws vary less than independent
    ones."""
    priority = np.random.default_rng(0).permutation(np.geomspace(1.0, 1000.0, 1002))
    store = Sampled(PrioritizedSampler, size=1002, alpha=0.6).set_errors(
        priority ** (1 / 0.6)
    )
    counts = store.counts(256, 200_000 // 256)
    assert chi_squared(counts, priority) < 1
    for wrong in (priority**0.95, priority**1.05, priority + 5.0, np.roll(priority, 1)):
        assert chi_squared(counts, wrong) > 1


def test_weights_undo_the_bias():
    """With β = 1 a weight is inversely proportional to the probability, the largest
    1."""
    error = np.arange(1.0, 61.0)
    store = Sampled(PrioritizedSampler, alpha=0.5).set_errors(error)
    for _ in range(20):
        indices, weight = store.sampler.sample(60, 0)
        probability = error[store.ages(indices)] ** 0.5
        assert_allclose(weight, probability.min() / probability, rtol=1e-5)


def test_the_newest_transitions_weigh_what_a_uniform_draw_does():
    """They were not drawn by priority, so there is no bias to undo.

    With β = 1 the weights of all others relate to theirs as 1 / (N P(i)) to 1.
    """
    error = np.arange(1.0, 61.0)
    store = Sampled(PrioritizedSampler).set_errors(error)
    for _ in range(20):
        indices, weight = (
            np.asarray(x) for x in store.sampler.sample(12, 0, store.ring.newest)
        )
        assert weight.max() == 1.0
        assert_array_equal(weight[-NUM_ENVS:], weight[-1])
        probability = (error / error.sum())[store.ages(indices)]
        relative = weight / weight[-1]
        wanted = 1 / (60 * probability)
        assert_allclose(relative[:-NUM_ENVS], wanted[:-NUM_ENVS], rtol=1e-5)


def test_new_transitions_are_as_likely_as_the_most_surprising_one():
    store = Sampled(PrioritizedSampler, alpha=0.6, epsilon=1e-4)
    store.set_errors(np.linspace(1.0, 9.0, 60))
    fill(store.add, 1, 1)
    priorities = store.sampler.state_dict()["priorities"]
    assert_allclose(priorities[store.ring.newest], (9.0 + 1e-4) ** 0.6)
    assert_array_equal(priorities[store.ring.overwritten], 0.0)


def test_errors_of_zero_leave_every_transition_drawable_and_weights_finite():
    store = Sampled(PrioritizedSampler, alpha=0.6).set_errors(np.zeros(60))
    assert (store.counts(60, 20) > 0).all()
    assert torch.isfinite(store.sampler.sample(60, 0).weight).all()
