"""Environments whose `np_random` is no Generator, or one of another kind."""

import copy
import io
import random

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.testing import assert_array_equal

from slm_lab.storage.checkpoint import from_plain, to_plain


class Drawing(gymnasium.Env):
    """Observes draws of its own generator. `make` makes one from a seed."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, make, draw):
        self.make = make
        self.draw = draw

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.np_random = self.make(seed)
        return np.array([self.draw(self.np_random)]), {}

    def step(self, action):
        return np.array([self.draw(self.np_random)]), 0.0, False, False, {}


class Failing(Drawing):
    @property
    def np_random(self):
        raise RuntimeError("seed me first")

    @np_random.setter
    def np_random(self, generator):
        self.generator = generator

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.generator = self.make(seed)
        return np.array([self.draw(self.generator)]), {}

    def step(self, action):
        return np.array([self.draw(self.generator)]), 0.0, False, False, {}


class Without(Failing):
    np_random = None


def make_function(seed):
    return random.Random(seed).random


KINDS = {
    "RandomState": (Drawing, np.random.RandomState, np.random.RandomState.uniform),
    "random.Random": (Drawing, random.Random, random.Random.random),
    "a function": (Drawing, make_function, lambda function: function()),
    "a property that raises": (Failing, random.Random, random.Random.random),
    "None": (Without, random.Random, random.Random.random),
    **{
        bits.__name__: (
            Drawing,
            lambda seed, bits=bits: np.random.Generator(bits(seed)),
            np.random.Generator.random,
        )
        for bits in (
            np.random.MT19937,
            np.random.Philox,
            np.random.SFC64,
            np.random.PCG64DXSM,
        )
    },
}


def reread(state):
    """The state as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(to_plain(state), file)
    file.seek(0)
    return from_plain(torch.load(file, weights_only=True))


@pytest.mark.parametrize("kind", KINDS)
def test_any_generator_is_saved_and_resumed_in_fresh_episodes(build, registered, kind):
    env_class, make, draw = KINDS[kind]
    name = registered("Drawing-v0", entry_point=lambda: env_class(make, draw))
    env = build(name, seed=5)
    first = env.reset().copy()
    for _ in range(3):
        env.step(np.zeros(3, np.int64))
    state = reread(env.state_dict())
    assert not env.exact_state
    resumed = build(name, seed=5)
    assert not resumed.load_state_dict(copy.deepcopy(state))
    again = build(name, seed=5)
    again.load_state_dict(state)
    assert_array_equal(resumed.obs, again.obs, "a resume can be repeated")
    assert not np.isin(resumed.obs, first).any(), (
        "the first episodes are not played again"
    )


def test_the_usual_generator_goes_on_where_it_was(build, registered):
    def draw(generator):
        return generator.random()

    name = registered(
        "Drawing-v0", entry_point=lambda: Drawing(np.random.default_rng, draw)
    )
    env = build(name)
    env.reset()
    state = reread(env.state_dict())
    resumed = build(name, seed=1)
    resumed.load_state_dict(state)
    assert_array_equal(resumed.obs, env.reset())
