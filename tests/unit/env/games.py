"""How the tests of Atari games play them."""

import numpy as np

PLAIN = {"noop_max": 0, "use_fire_reset": False, "repeat_action_probability": 0.0}
"""without what is random, and without what Gymnasium has no wrapper for"""


def actions_for(env, count, idle_after=None, seed=0):
    """(count, N) random actions that serve where FIRE does; none after `idle_after`
    steps."""
    actions = np.random.default_rng(seed).integers(
        0, env.action_space.n, (count, env.num_envs)
    )
    actions[idle_after or count :] = 0
    actions[::10] = 1
    return actions
