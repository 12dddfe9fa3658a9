"""Replayed steps are stored raw, and normalised by the statistics at sampling time."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from slm_lab.agent.memory.imitation import PastEpisodes, ReturnRing
from slm_lab.agent.memory.sampler import UniformSampler
from slm_lab.parallel.actor_learner.actor import UnrollActor
from slm_lab.parallel.actor_learner.unroll import Unroll
from slm_lab.session.experience import Clock
from slm_lab.session.seeding import session_seeds
from slm_lab.testing.play import Play
from tests.contract.table import ALGORITHM_ROWS, PRIORITIZED
from tests.support import memory_layout, parse, ppo, q_learning, run_session
from tests.unit.agent.algorithm.past_steps import rollout

GAMMA = 0.99
N = 4
BOTH = {"env__normalize_obs": True, "env__normalize_reward": True}
FRAMES = {"single": {}, "joined": {"env__frame_op": "concat", "env__frame_op_len": 3}}


def normal_obs(env, raw):
    """By hand: each frame less the mean of now, over the deviation of now, clipped."""
    count = env.statistics[0]
    mean = env.statistics[1:5]
    m2 = env.statistics[5:9]
    frames = (raw.reshape(-1, 4) - mean) / np.sqrt(m2 / count + 1e-8)
    return np.clip(frames, -10, 10).reshape(raw.shape)


def normal_reward(env, raw):
    count, _, m2 = env.statistics[9:]
    return np.clip(raw / np.sqrt(m2 / count + 1e-8), -10, 10)


@pytest.mark.parametrize("frames", FRAMES)
@pytest.mark.parametrize("num_steps", [1, 3])
@pytest.mark.parametrize("memory", [None, PRIORITIZED])
def test_a_transition_equals_what_networks_get_for_the_same_state_now(
    frames, num_steps, memory
):
    keys = {**BOTH, **FRAMES[frames], "agent__algorithm__num_step_returns": num_steps}
    keys |= {} if memory is None else {"agent__memory": memory}
    play = Play(parse(q_learning("DQN", **keys)))
    kept = []
    for _ in range(45):
        _, step = play.step()
        kept.append(step)
    env = play.env
    seen = set()
    for _ in range(60):
        batch = play.agent.memory.sample(0)
        for i, index in enumerate(batch.index.tolist()):  # nothing was overwritten yet
            t, n = divmod(index, N)
            if index in seen:
                continue
            seen.add(index)
            reward = 0.0
            discount = 1.0
            for last in kept[t : t + num_steps]:
                reward += discount * normal_reward(env, last.raw.reward[n])
                discount *= GAMMA
                if last.terminated[n] or last.truncated[n]:
                    break
            obs, next_obs = (
                normal_obs(env, x) for x in (kept[t].raw.obs[n], last.raw.next_obs[n])
            )
            assert_allclose(batch.obs[i], obs, rtol=1e-5, atol=1e-5)
            assert_allclose(batch.next_obs[i], next_obs, rtol=1e-5, atol=1e-5)
            assert_allclose(batch.reward[i], reward, rtol=1e-5)
    assert len(seen) > 45 * N * 0.9
    env.close()


@pytest.mark.parametrize(
    ("make", "is_raw"), [(lambda **k: q_learning("DQN", **k), True), (ppo, False)]
)
def test_actors_send_raw_steps_to_replay_learners_and_normalised_ones_to_others(
    make, is_raw
):
    spec = parse(make(**BOTH, meta__distributed="actor_learner"))
    clock = Clock(np.zeros(1, np.int64), 0, 10_000)
    actor = UnrollActor(spec, session_seeds(0, 0, 0), clock)
    actor.reset()
    unroll = Unroll.allocate(actor.layout)
    actor.play(unroll)
    assert (unroll.reward == 1.0).all() == is_raw, "each step of CartPole gives 1"
    last = actor.env.obs
    if is_raw:
        last = actor.env.raw_obs
    running = ~(unroll.terminated[-1] | unroll.truncated[-1])
    assert running.any()
    assert_array_equal(unroll.obs[-1][running], last[running])
    actor.close()


@pytest.mark.parametrize("num_envs", [1, 2])
def test_past_returns_are_sums_of_rewards_normalised_and_clipped_now(num_envs):
    class Now:
        scale = 1.0
        shift = 0.0

        def obs(self, raw):
            return (raw - self.shift).astype(np.float32)

        def reward(self, raw):
            return np.clip(raw * self.scale, -1, 1).astype(np.float32)

    now = Now()
    gamma = 0.9
    layout = memory_layout((1,), num_envs=num_envs, normalization=now)
    ring = ReturnRing(6, gamma, layout)
    memory = PastEpisodes(ring, UniformSampler(ring, 0), batch_size=6, use_cer=False)
    reward = np.array([[0.2], [0.4], [-0.3], [0.5], [0.1]], np.float32).repeat(
        num_envs, 1
    )
    truncated = np.zeros((5, num_envs), bool)
    truncated[2] = truncated[4] = True  # episodes of three steps and of two
    obs = np.arange(5 * num_envs, dtype=np.float32).reshape(5, num_envs, 1)
    memory.add(rollout(obs, reward, np.zeros((5, num_envs), bool), truncated))
    for now.scale, now.shift in ((1.0, 0.0), (5.0, 2.0)):
        wanted = {}
        for n in range(num_envs):
            for episode in (range(3), range(3, 5)):
                following = 0.0
                for t in reversed(episode):
                    following = now.reward(reward[t, n]) + gamma * following
                    wanted[float(obs[t, n, 0])] = following
        batch = memory.sample(0)
        for seen, returns in zip(
            batch.obs[:, 0].tolist(), batch.reward.tolist(), strict=True
        ):
            assert returns == pytest.approx(wanted[seen + now.shift], rel=1e-5)


def test_episodes_that_are_broken_off_end_in_a_raw_observation(tmp_path):
    spec = ALGORITHM_ROWS["DQN"]["normalized_stacked"].spec
    first = run_session(
        spec.model_copy(update={"env": spec.env.model_copy(update={"max_frame": 300})}),
        tmp_path,
    )
    ended_in = first.env.raw_obs
    agent = first.agent
    agent.break_off(first.env.obs, first.env.raw_obs)
    log = agent.memory.log
    newest = log.content(log.count - 1, log.count)
    assert newest["arrays"]["done"].all()
    last_frames = newest["obs"]["last_frames"].reshape(N, 4)
    running = [n for n in range(N) if np.array_equal(last_frames[n], ended_in[n, 4:])]
    assert running, "the raw observation that a running episode ended in is kept"
