from contextlib import closing
from functools import partial

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.core.errors import LabError
from slm_lab.env.make import make_env
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.session.play_episodes import (
    MAX_ENVS,
    MAX_STEPS,
    even_num_envs,
    finished_episodes,
    join_episodes,
    longest,
    step_bound,
    summarise_episodes,
)
from slm_lab.spec.schema.env import EnvSpec
from tests.support import parse, ppo


def play_episodes(*args, **limits):
    return join_episodes(list(finished_episodes(*args, **limits)))


class Countdown:
    """Environment i ends every lengths[i] steps; its k-th episode returns 100 i + k."""

    begun = None

    def __init__(self, lengths, returns=None):
        self.num_envs = len(lengths)
        self.lengths = np.array(lengths)
        self.t = 0
        self.count = np.zeros(len(lengths), np.int64)
        self.returns = returns

    def reset(self):
        return self._obs()

    def step(self, action):
        np.testing.assert_array_equal(action, self._obs()[:, 0])
        self.t += 1
        self.obs = self._obs()
        self.finished = None
        self.terminated = self.t % self.lengths == 0
        self.truncated = np.zeros(self.num_envs, bool)
        ended = np.flatnonzero(self.terminated)
        if ended.size:
            value = 100.0 * ended + self.count[ended]
            if self.returns is not None:
                value = np.array(self.returns)[ended]
            self.finished = FinishedEpisodes(
                ended, value, self.lengths[ended], np.empty((len(ended), 0))
            )
            self.count[ended] += 1
        return self

    def _obs(self):
        return np.full((self.num_envs, 1), float(self.t))


def first(obs):
    return obs[:, 0]


lengths = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def test_ended_environments_are_passed_on_after_every_step():
    ended_masks = []
    list(
        finished_episodes(
            Countdown([1, 2]),
            first,
            2,
            "x",
            ended=lambda e: ended_masks.append(e.copy()),
        )
    )
    assert np.stack(ended_masks).tolist() == [[True, False], [True, True]] * 2


@given(lengths, st.integers(1, 4))
def test_every_environment_contributes_its_first_episodes_equally_often(
    lengths, per_env
):
    played = play_episodes(Countdown(lengths), first, per_env, "x")
    wanted = sorted(100.0 * i + k for i in range(len(lengths)) for k in range(per_env))
    assert sorted(played.episode_return.tolist()) == wanted
    for index, length in zip(played.env_index, played.episode_length, strict=True):
        assert length == lengths[index]


@given(lengths, st.integers(1, 4))
def test_nothing_is_played_beyond_the_last_episode_that_counts(lengths, per_env):
    env = Countdown(lengths)
    play_episodes(env, first, per_env, "x")
    assert env.t == max(lengths) * per_env


def test_episodes_come_as_they_end():
    env = Countdown([2, 5])
    parts = [
        (env.t, part.env_index.tolist())
        for part in finished_episodes(env, first, 2, "x")
    ]
    assert parts == [(2, [0]), (4, [0]), (5, [1]), (10, [1])]


def test_parts_are_joined_in_their_order():
    parts = list(finished_episodes(Countdown([2, 2, 3]), first, 1, "x"))
    joined = join_episodes(parts)
    assert joined.env_index.tolist() == [0, 1, 2]
    assert joined.episode_length.tolist() == [2, 2, 3]


def test_an_episode_that_does_not_end_is_given_up_with_the_fix():
    env = Countdown([1, 51])
    with pytest.raises(LabError, match=r"Endless-v0.*50 steps.*env\.max_t"):
        play_episodes(env, first, 3, "Endless-v0", max_steps=50)
    assert env.t == 50


@pytest.mark.parametrize("per_env", [1, 7])
def test_long_episodes_do_not_count_as_endless(per_env):
    played = play_episodes(Countdown([1, 49, 50]), first, per_env, "x", max_steps=50)
    assert len(played.env_index) == 3 * per_env


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_return_that_is_no_number_is_reported(value):
    with pytest.raises(LabError, match=r"Env-v0.*finite"):
        play_episodes(Countdown([1, 3], returns=[0.0, value]), first, 1, "Env-v0")


@given(st.integers(1, 2000), st.integers(1, 30))
def test_episodes_can_be_shared_equally_by_as_many_environments_as_train(
    count, trained
):
    num_envs = even_num_envs(count, trained)
    most = min(trained, MAX_ENVS)
    assert count % num_envs == 0
    assert 1 <= num_envs <= most
    assert not any(count % more == 0 for more in range(num_envs + 1, most + 1))


@pytest.mark.parametrize(
    ("max_t", "bound"),
    [(None, MAX_STEPS), (7, MAX_STEPS), (MAX_STEPS + 1, MAX_STEPS + 1)],
)
def test_the_bound_is_never_less_than_the_limit_that_was_set(max_t, bound):
    assert step_bound(parse(ppo(env__max_t=max_t)).env) == bound


def test_the_bound_is_never_less_than_the_limit_of_the_environment():
    gymnasium.register(
        "Long-v0", entry_point="none:None", max_episode_steps=3 * MAX_STEPS
    )
    try:
        spec = parse(ppo()).env.model_copy(update={"name": "Long-v0"})
        assert step_bound(spec) == 3 * MAX_STEPS
    finally:
        del gymnasium.registry["Long-v0"]


def test_a_stop_request_is_handled_between_two_steps():
    env = Countdown([2, 1000])
    parts = list(finished_episodes(env, first, 3, "x", stop=lambda: env.t >= 5))
    assert env.t == 5
    assert [part.env_index.tolist() for part in parts] == [[0], [0]]


def test_a_copy_plays_whole_episodes_of_all_its_agents():
    """Those of its agents come together, and an agent that comes back counts twice."""
    spec = EnvSpec(name="pettingzoo:tests.team", num_envs=2, max_frame=100)
    with closing(make_env(spec, 0)) as env:
        act = partial(np.zeros, dtype=np.int64)
        parts = list(finished_episodes(env, lambda obs: act(len(obs)), 2, "team"))
    agents = [0, 1, 2, 2, 3]
    of_both = [*agents, *(4 + agent for agent in agents)]
    assert [sorted(part.env_index.tolist()) for part in parts] == [of_both] * 2
    assert sum(part.episode_length.sum() for part in parts) == 4 * (8 + 3 + 2 + 2 + 6)


def test_episodes_are_summarised_by_their_returns_and_lengths():
    returns = np.array([1.0, 4.0, 4.0])
    steps = np.array([2, 9, 4])
    episodes = FinishedEpisodes(np.arange(3), returns, steps, np.empty((3, 0)))
    assert summarise_episodes(episodes) == {
        "episodes": 3,
        "mean": 3.0,
        "std": pytest.approx(2**0.5),
        "min": 1.0,
        "max": 4.0,
        "length": 5.0,
    }
    assert longest(episodes) == 9
