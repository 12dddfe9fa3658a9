"""An episode that ends for the learner, e.g. by a lost life, and continues in the
environment."""

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from slm_lab.env.vector.raw import CONTINUES


class Lives(gymnasium.Env):
    """Each third step costs a life, of which there are two; a step is worth what it is
    called."""

    observation_space = gymnasium.spaces.Box(0.0, 99.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.step_count = 0
        self.lost = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        continues = self.lost and seed is None
        self.lost = False
        self.step_count = self.step_count if continues else 0
        return self.look(), {CONTINUES: True} if continues else {}

    def step(self, action):
        self.step_count += 1
        self.lost = self.step_count == 3
        return self.look(), float(self.step_count), self.step_count in (3, 6), False, {}

    def look(self):
        return np.array([self.step_count], np.float32)


@pytest.fixture
def lives(registered):
    return registered("Lives-v0", Lives)


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_learner_sees_ends_where_scores_count_whole_episodes(build, lives, mode):
    env = build(
        lives, num_envs=2, vectorization_mode=mode, frame_op="stack", frame_op_len=2
    )
    env.reset()
    seen = []
    for _ in range(12):
        step = env.step(np.zeros(2, np.int64))
        seen.append(
            (
                step.terminated[0],
                step.next_obs[0].ravel().tolist(),
                step.obs[0].ravel().tolist(),
                step.finished,
            )
        )
    assert [terminated for terminated, *_ in seen] == [False, False, True] * 4
    assert [last for _, last, _, _ in seen] == [[n, n + 1] for n in range(6)] * 2
    following = [[n, n + 1] for n in range(5)] + [[0, 0]]
    assert [obs for _, _, obs, _ in seen] == following * 2
    assert [finished is not None for *_, finished in seen] == ([False] * 5 + [True]) * 2
    for *_, finished in seen[5::6]:
        assert_array_equal(finished.episode_return, [21, 21])
        assert_array_equal(finished.episode_length, [6, 6])


def test_discounted_returns_restart_with_every_end_that_the_learner_sees(build, lives):
    env = build(lives, num_envs=1, normalize_reward=True, gamma=0.5)
    env.reset()
    running = []
    for _ in range(6):
        env.step(np.zeros(1, np.int64))
        running.append(env.state_dict()["reward"]["discounted_return"].item())
    assert running == [1, 2.5, 0, 4, 7, 0]


def test_an_explicit_reset_begins_a_new_episode(build, lives):
    env = build(lives, num_envs=1)
    env.reset()
    for _ in range(3):
        env.step(np.zeros(1, np.int64))
    assert env.obs == 3
    assert env.reset() == 0


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_step_limit_counts_on_through_a_lost_life(build, lives, mode):
    env = build(lives, num_envs=1, vectorization_mode=mode, max_t=5)
    env.reset()
    ends = []
    for _ in range(10):
        step = env.step(np.zeros(1, np.int64))
        ends.append(
            (
                bool(step.terminated[0]),
                bool(step.truncated[0]),
                step.finished is not None,
            )
        )
    nothing = (False, False, False)
    life = (True, False, False)
    cut = (False, True, True)
    assert ends == [nothing, nothing, life, nothing, cut] * 2
