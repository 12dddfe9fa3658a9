import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from slm_lab.env.vector.raw import env_seeds


def test_an_environment_keeps_its_seed_when_more_are_added():
    assert env_seeds(3, 8)[:4] == env_seeds(3, 4)
    assert len({*env_seeds(0, 1000), *env_seeds(1, 1000)}) > 1995
    assert all(0 <= seed < 2**31 for seed in env_seeds(7, 1000))


class OfASeed(gymnasium.Env):
    """Its `reset` has a seed by default, or needs one, as in code of beginners."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def _begin(self, seed):
        super().reset(seed=seed)
        return self.np_random.standard_normal(2).astype(np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, True, False, {}


class ByDefault(OfASeed):
    def reset(self, *, seed=42, options=None):
        return self._begin(seed)


class Needing(OfASeed):
    def reset(self, seed):
        return self._begin(seed)


@pytest.mark.parametrize(
    "mode", ["sync", pytest.param("async", marks=pytest.mark.medium)]
)
@pytest.mark.parametrize("kind", [ByDefault, Needing])
def test_only_the_first_reset_seeds(build, registered, kind, mode):
    env = build(registered("OfASeed-v0", entry_point=kind), vectorization_mode=mode)
    env.reset()
    first, second = (env.step(np.zeros(3, np.int64)).obs for _ in range(2))
    assert len(np.unique(np.concatenate([first, second]))) == first.size * 2
