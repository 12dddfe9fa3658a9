"""Agents as rows of one vector environment. Their plans are in `tests.team`: of four
agents in 8 steps, "stays" acts in all, "leaves" in the first 3, "comes_back" in 2 and
2, and "joins" in the last 6."""

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from slm_lab.core.errors import LabError
from slm_lab.env.vector_env import MOST_SHOWN, shown_agents
from tests.team import LENGTH, PLANS, Team

TEAM = "pettingzoo:tests.team"
AGENTS = len(PLANS)
ACTS = np.array(
    [
        [any(begin <= t < end for begin, end, _ in plan) for plan in PLANS.values()]
        for t in range(LENGTH)
    ]
)
"""(8, 4) which agent acts in which step."""
TWICE = np.concatenate([ACTS, ACTS])


@pytest.fixture
def env(build):
    return build(TEAM, num_envs=2)


def play(env, count, action=0):
    """The steps of `count` constant actions after a reset, with the observations acted
    on."""
    obs = env.reset()
    for _ in range(count):
        result = env.step(np.full(env.num_envs, action))
        yield obs, result
        obs = result.obs


def is_present(result):
    if result.absent is None:
        return np.ones(len(result.reward), np.bool_)
    return ~result.absent


def test_a_row_is_present_where_its_agent_acts(env):
    assert env.num_envs == 2 * AGENTS
    assert env.num_agents == AGENTS
    for acts, (_, result) in zip(TWICE, play(env, 16), strict=True):
        assert_array_equal(is_present(result), np.tile(acts, 2))
        assert result.num_frames == 2 * acts.sum()


def test_a_present_row_shows_its_own_agent_at_its_time(env):
    for t, (obs, result) in enumerate(play(env, 16)):
        own = np.tile(np.arange(AGENTS) / 4, 2)
        present = is_present(result)
        assert_array_equal(obs[present, 2], own[present])
        assert_array_equal(obs[present, 1], np.full(present.sum(), t % LENGTH / LENGTH))
        assert_array_equal(obs[present, 3], np.full(present.sum(), t // LENGTH))
        assert_array_equal(result.next_obs[present, 1], obs[present, 1] + 1 / LENGTH)
        assert_array_equal(result.next_obs[present, 2:], obs[present, 2:])


def test_an_end_is_the_agents_own_and_absent_rows_are_terminated(env):
    ends = {
        (end - 1, n): how
        for n, plan in enumerate(PLANS.values())
        for _, end, how in plan
    }
    for t, (_, result) in enumerate(play(env, 16)):
        for row in range(env.num_envs):
            how = ends.get((t % LENGTH, row % AGENTS))
            if not ACTS[t % LENGTH, row % AGENTS]:
                how = "terminated"
            assert result.terminated[row] == (how == "terminated")
            assert result.truncated[row] == (how == "truncated")


def test_episodes_are_those_of_agents_with_their_own_lengths(env):
    lengths = {n: [] for n in range(AGENTS)}
    returns = dict.fromkeys(range(env.num_envs), 0.0)
    for _, result in play(env, 8):
        for row, reward in enumerate(result.reward):
            returns[row] += float(reward)
        if result.finished is not None:
            for row, episode_return, length, info in zip(*result.finished, strict=True):
                lengths[row % AGENTS].append(int(length))
                assert episode_return == returns[row]
                returns[row] = 0.0
                column = np.full(AGENTS, np.nan)
                column[row % AGENTS] = episode_return
                assert_array_equal(info, column)
    assert lengths == {0: [8, 8], 1: [3, 3], 2: [2, 2, 2, 2], 3: [6, 6]}
    assert env.shown_agents == tuple(PLANS)


def test_all_agents_of_a_copy_begin_anew_together(env):
    begun = [result.begun.any() for _, result in play(env, 16)]
    assert [t for t, is_begun in enumerate(begun) if is_begun] == [7, 15]


def test_copies_have_different_seeds_and_repeats_the_same(build):
    first, second, other = (
        np.stack([obs for obs, _ in play(build(TEAM, seed=seed, num_envs=2), 16)])
        for seed in (1, 1, 2)
    )
    assert_array_equal(first, second)
    assert (first != other).any()
    signs = first[:, :, 0]
    assert (signs[:, :AGENTS] != signs[:, AGENTS:]).any()
    assert (signs[:8] != signs[8:]).any()


def test_statistics_count_only_what_an_agent_sees(build):
    normal = build(TEAM, num_envs=2, normalize_obs=True)
    plain = build(TEAM, num_envs=2)
    seen = []
    for obs, result in play(plain, 16):
        seen.append(obs[is_present(result)])
    for _ in play(normal, 16):
        pass
    # the observations to act on next are counted already
    seen.append(plain.obs if plain.raw.absent is None else plain.obs[~plain.raw.absent])
    seen = np.concatenate(seen)
    count, mean = normal.statistics[0], normal.statistics[1:5]
    assert count == len(seen)
    np.testing.assert_allclose(mean, seen.mean(0), rtol=1e-6, atol=1e-9)


def test_rewards_are_normalised_by_the_returns_of_present_agents(build):
    env = build(TEAM, num_envs=2, normalize_reward=True)
    present = sum(is_present(result).sum() for _, result in play(env, 16))
    assert env.statistics[0] == present


def test_a_stack_begins_anew_where_an_agent_joins(build):
    env = build(TEAM, num_envs=1, frame_op="concat", frame_op_len=2)
    for step, (obs, result) in enumerate(play(env, 16)):
        t = step % LENGTH
        for row in np.flatnonzero(is_present(result)):
            begins = t == 0 or not ACTS[t - 1, row]
            first, second = obs[row, :4], obs[row, 4:]
            if begins:
                assert_array_equal(first, second)
            else:
                assert second[1] - first[1] == 1 / LENGTH
            assert_array_equal(result.next_obs[row, :4], second)


def test_masks_of_absent_rows_allow_an_action(build):
    keys = {"action_mask": "info.action_mask", "masked": True}
    env = build(TEAM, num_envs=2, **keys)
    columns = slice(-2, None)
    obs = env.reset()
    for _ in range(16):
        assert obs[:, columns].any(1).all()
        obs = env.step(obs[:, columns].argmax(1)).obs  # the team checks it


def test_numbers_of_the_last_info_are_the_agents_own(build):
    env = build(TEAM, num_envs=1, info_keys=["time"])
    ends = {}
    for t, (_, result) in enumerate(play(env, 8)):
        if result.finished is not None:
            for row, info in zip(
                result.finished.env_index, result.finished.info, strict=True
            ):
                ends.setdefault(int(row), []).append((t + 1, info[0]))
    assert ends == {0: [(8, 8)], 1: [(3, 3)], 2: [(2, 2), (6, 6)], 3: [(8, 8)]}


def test_wrappers_change_what_each_agent_sees_and_gets(build):
    wrapper = "tests.unit.env.vector.test_agents:halved"
    env = build(TEAM, num_envs=2, wrappers=[wrapper])
    plain = build(TEAM, num_envs=2)
    pairs = zip(play(env, 8), play(plain, 8), strict=True)
    for (_, result), (_, expected) in pairs:
        assert_array_equal(result.reward, expected.reward / 2)


def halved(env):
    from gymnasium.wrappers import TransformReward

    return TransformReward(env, lambda reward: reward / 2)


def test_a_wrapper_that_changes_actions_is_refused(build):
    env = build(TEAM, num_envs=1, wrappers=["tests.unit.env.vector.test_agents:turned"])
    env.reset()
    with pytest.raises(LabError, match="changes actions"):
        env.step(np.zeros(AGENTS, np.int64))


def turned(env):
    from gymnasium.wrappers import TransformAction

    return TransformAction(env, lambda action: 1 - action, env.action_space)


def test_a_step_limit_is_of_all_agents(build):
    env = build(TEAM, num_envs=1, max_t=4)
    *_, (_, result) = play(env, 4)
    assert result.truncated[[0, 3]].all()
    assert result.terminated[1]
    assert result.begun.all()


def test_a_failing_step_names_the_copy_and_the_actions_by_agent(build, monkeypatch):
    env = build(TEAM, num_envs=2)
    env.reset()

    def fail(self, actions):
        raise RuntimeError("it broke")

    monkeypatch.setattr(Team, "step", fail)
    with pytest.raises(RuntimeError) as caught:
        env.step(np.zeros(env.num_envs, np.int64))
    (note,) = caught.value.__notes__
    assert "environment 0 of 2" in note
    assert "'stays': 0" in note


def test_of_hundreds_of_agents_some_are_shown():
    names = tuple(f"agent_{k}" for k in range(200))
    shown = shown_agents(names)
    assert len(set(shown)) == MOST_SHOWN
    assert (shown[0], shown[-1]) == ("agent_0", "agent_199")
    assert shown_agents(names[:3]) == names[:3]


def test_a_saved_copy_goes_on(build):
    env = build(TEAM, num_envs=2)
    assert env.exact_state
    for _ in play(env, 11):
        pass
    saved = env.state_dict()
    expected = [env.step(np.zeros(env.num_envs, np.int64)) for _ in range(10)]
    other = build(TEAM, seed=9, num_envs=2)
    other.reset()
    assert other.load_state_dict(saved)
    for result in expected:
        again = other.step(np.zeros(env.num_envs, np.int64))
        assert_array_equal(again.obs, result.obs)
        assert_array_equal(is_present(again), is_present(result))


class Noisy(gymnasium.ObservationWrapper):
    """Adds noise from the generator of the environment."""

    def observation(self, observation):
        noise = self.np_random.normal(size=observation.shape)
        return (observation + noise).astype(np.float32)


NOISY = "tests.unit.env.vector.test_agents:Noisy"


def test_what_wrappers_of_agents_draw_repeats_and_differs_between_rows(build):
    first, again, other = (
        build(TEAM, seed=seed, num_envs=2, wrappers=[NOISY]) for seed in (3, 3, 4)
    )
    steps = zip(play(first, 11), play(again, 11), play(other, 11), strict=True)
    for (obs, _), (same, _), (unlike, _) in steps:
        assert_array_equal(obs, same)
        assert (obs != unlike).any()
    noise = first.reset()[[0, AGENTS], 1]  # both see the time 0
    assert noise[0] != noise[1]


def test_wrappers_of_agents_whose_state_is_not_saved_begin_anew(build):
    stack = {"name": "gymnasium.wrappers:FrameStackObservation", "stack_size": 3}
    env = build(TEAM, num_envs=1, wrappers=[stack])
    assert not env.exact_state
    for _ in play(env, 3):
        pass
    other = build(TEAM, seed=9, num_envs=1, wrappers=[stack])
    other.reset()
    assert not other.load_state_dict(env.state_dict())
    other.step(np.zeros(AGENTS, np.int64))


def test_an_episode_that_cannot_be_saved_is_begun_anew(build, monkeypatch):
    monkeypatch.delitem(
        __import__("slm_lab.env.state", fromlist=["x"]).ENV_ADAPTERS, "tests.team:Team"
    )
    env = build(TEAM, num_envs=1)
    assert not env.exact_state
    for _ in play(env, 3):
        pass
    saved = env.state_dict()
    following = env.raw._copies[0].reset()[0]["stays"].obs
    other = build(TEAM, seed=9, num_envs=1)
    other.reset()
    assert not other.load_state_dict(saved)
    # with the next seed, not that of a new run
    assert other.obs[0, 0] == following[0]
    assert other.obs[0, 1] == 0.0
