import gymnasium
import numpy as np
import pytest
from hypothesis import settings

from slm_lab.env.check import check_env
from slm_lab.env.make import make_env
from slm_lab.spec.schema.env import EnvSpec
from tests.unit.spec.problems import assert_lines

# A busy machine makes an example slow; that says nothing about the code.
settings.register_profile("lab", deadline=None)
settings.load_profile("lab")


@pytest.fixture
def env_spec():
    """An EnvSpec from its keys."""

    def make(name, **keys):
        return EnvSpec(name=name, **{"max_frame": 1000, "num_envs": 3} | keys)

    return make


@pytest.fixture
def assert_refused(env_spec):
    """Checks that the keys of an environment have these problems; see
    `assert_lines`."""

    def check(name, *problems, **keys):
        assert_lines(
            [str(each) for each in check_env(env_spec(name, **keys))], problems
        )

    return check


@pytest.fixture
def build(env_spec):
    """Makes environments from the keys of a spec and closes them after the test."""
    made = []

    def make(name, seed=0, training=True, gamma=0.99, **keys):
        env = make_env(env_spec(name, **keys), seed, training, gamma)
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()


@pytest.fixture
def random_actions():
    """`count` batches of actions for an environment, from a seed."""

    def draw(env, count, seed=0):
        rng = np.random.default_rng(seed)
        space = env.action_space
        if isinstance(space, gymnasium.spaces.Discrete):
            return rng.integers(0, space.n, (count, env.num_envs))
        return rng.uniform(-1.2, 1.2, (count, env.num_envs, *space.shape)).astype(
            np.float32
        )

    return draw
