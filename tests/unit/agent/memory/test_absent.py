"""Rows without an agent in every memory: nobody learns from them."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from slm_lab.agent.algorithm.minibatches import even_sizes
from slm_lab.agent.algorithm.returns import gae, n_step_returns
from slm_lab.agent.batch import Act, VectorStep
from slm_lab.agent.memory.episodes import OnPolicyReplay
from slm_lab.agent.memory.memory import ReplayConfig, TrainingSchedule
from slm_lab.agent.memory.on_policy import OnPolicyBatchReplay
from slm_lab.agent.memory.replay import Replay
from slm_lab.agent.memory.sampler import Priority
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.core.errors import LabError
from tests.support import memory_layout
from tests.unit.env.vector.test_agents import ACTS, AGENTS

ENDS = {(2, 1): "terminated", (1, 2): "truncated", (5, 2): "terminated"}
"""The step and the agent of each end, as in the plans of `tests.team`."""
NOTHING = -99.0
"""What stands in the rows of absent agents."""


def steps(count=8, first=0):
    """Steps of the four agents. An observation is 100 · agent + step."""
    for t in range(first, first + count):
        present = ACTS[t % 8]
        number = np.where(present, 100.0 * np.arange(AGENTS) + t, NOTHING)
        terminated = ~present
        truncated = np.zeros(AGENTS, np.bool_)
        for n in range(AGENTS):
            how = ENDS.get((t % 8, n))
            terminated[n] |= how == "terminated"
            truncated[n] = how == "truncated"
        if t % 8 == 7:
            terminated[0] = True
            truncated[3] = True
        obs = number[:, None].astype(np.float32)
        yield VectorStep(
            obs=obs,
            act=Act(
                action=np.zeros(AGENTS, np.int64),
                log_prob=np.zeros(AGENTS, np.float32),
                value=(number / 10).astype(np.float32),
                version=0,
            ),
            reward=np.where(present, number, 0.0).astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            next_obs=np.where(present[:, None], obs + 0.5, NOTHING),
            absent=None if present.all() else ~present,
        )


def fill(memory, count=8):
    for step in steps(count):
        memory.add(step)


def rollout(horizon=8, **keys):
    layout = memory_layout(
        (1,), horizon=horizon, num_envs=AGENTS, may_be_absent=True, **keys
    )
    memory = OnPolicyBatchReplay(layout)
    fill(memory, horizon)
    samples = memory.num_samples
    taken = memory.take()
    assert taken.reward.numel() == samples == ACTS[:horizon].sum()
    return taken


def estimates(taken):
    """Advantages and 3-step returns by the observation of their step."""
    next_value = taken.next_value(taken.bootstrap_obs[:, 0] / 10)
    common = {
        "reward": taken.reward,
        "next_value": next_value,
        "terminated": taken.terminated,
        "done": taken.done,
        "gamma": 0.9,
    }
    advantage = gae(value=taken.value, gae_lambda=0.8, **common)
    returns = n_step_returns(num_steps=3, **common)
    keys = taken.obs.flatten().tolist()
    return dict(
        zip(
            keys,
            zip(advantage.flatten().tolist(), returns.flatten().tolist(), strict=True),
            strict=True,
        )
    )


@pytest.mark.parametrize("horizon", [8, 7, 5, 4, 2])
def test_estimates_are_those_of_each_agents_own_steps(horizon):
    """Each agent alone, in a rollout of its own without gaps."""
    expected = {}
    for n in range(AGENTS):
        own = [
            step for step in steps(horizon) if step.absent is None or not step.absent[n]
        ]
        if not own:
            continue
        memory = OnPolicyBatchReplay(memory_layout((1,), horizon=len(own), num_envs=1))
        for step in own:
            row = slice(n, n + 1)
            memory.add(
                VectorStep(
                    obs=step.obs[row],
                    act=Act(*(part[row] for part in step.act[:3]), 0),
                    reward=step.reward[row],
                    terminated=step.terminated[row],
                    truncated=step.truncated[row],
                    next_obs=step.next_obs[row],
                )
            )
        expected |= estimates(memory.take())
    actual = estimates(rollout(horizon))
    assert actual.keys() == expected.keys()
    for key, numbers in expected.items():
        np.testing.assert_allclose(actual[key], numbers, rtol=1e-5)


def test_a_rollout_without_gaps_stays_a_grid():
    memory = OnPolicyBatchReplay(memory_layout((1,), num_envs=AGENTS, horizon=8))
    for step in steps():
        memory.add(step._replace(absent=None))
    assert memory.take().reward.shape == (8, AGENTS)


def test_packed_rows_start_a_sequence_where_the_steps_of_an_agent_begin():
    memory = OnPolicyBatchReplay(
        memory_layout(
            (2,), horizon=5, num_envs=AGENTS, may_be_absent=True, is_packed=True
        )
    )
    for step in steps(5):
        packed = np.concatenate([step.obs, np.zeros((AGENTS, 1))], 1)
        memory.add(step._replace(obs=packed, next_obs=packed))
    obs = memory.take().obs[:, 0]
    starts = obs[obs[:, 1] == 1, 0]
    assert starts.tolist() == [0.0, 100.0, 200.0, 302.0]


def test_a_rollout_goes_on_after_a_load():
    layout = memory_layout((1,), horizon=8, num_envs=AGENTS, may_be_absent=True)
    whole, cut, other = (OnPolicyBatchReplay(layout) for _ in range(3))
    fill(whole)
    fill(cut, 4)
    other.load_state_dict(cut.state_dict())
    for step in steps(4, first=4):
        other.add(step)
    expected, actual = vars(whole.take()), vars(other.take())
    assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())


def test_episodes_are_those_of_agents():
    memory = OnPolicyReplay(memory_layout((1,), horizon=5, num_envs=AGENTS))
    fill(memory)
    taken = memory.take()
    obs = taken.obs.flatten().tolist()
    episodes = [
        [200.0, 201.0],
        [100.0, 101.0, 102.0],
        [204.0, 205.0],
        [float(t) for t in range(8)],
        [300.0 + t for t in range(2, 8)],
    ]
    assert obs == [number for episode in episodes for number in episode]
    assert taken.done.sum() == 5


def replay(priority=None, recurrent=None, **keys):
    config = ReplayConfig(
        TrainingSchedule(1, 0), gamma=0.9, num_steps=3, seed=0, recurrent=recurrent
    )
    shape = (1,) if recurrent is None else (3,)
    layout = memory_layout(shape, num_envs=AGENTS, replay=config, may_be_absent=True)
    return Replay(layout, priority=priority, **{"max_size": 32, "batch_size": 8} | keys)


@pytest.mark.parametrize("priority", [None, Priority()])
@pytest.mark.parametrize("use_cer", [False, True])
def test_a_replay_samples_only_steps_of_agents(priority, use_cer):
    memory = replay(priority, use_cer=use_cer)
    for count, step in enumerate(steps(24), start=1):
        memory.add(step)
        for _ in range(20):
            batch = memory.sample(0)
            assert (batch.obs != NOTHING).all()
            assert len(batch.obs) == 8
        assert memory.num_stored == sum(ACTS[t % 8].sum() for t in range(count))
    if use_cer:
        newest = batch.obs[-2:].flatten().tolist()
        assert newest == [23.0, 323.0]


def test_n_steps_end_with_the_episode_of_an_agent():
    memory = replay()
    fill(memory)
    ring = memory.ring
    index = 1 * AGENTS + 1  # the second step of the agent that leaves after three
    gathered = ring.gather(np.array([index]))
    np.testing.assert_allclose(gathered.reward, [101.0 + 0.9 * 102.0])
    assert gathered.discount == [0.0]
    index = 2 * AGENTS + 3  # the first step of the agent that joins
    assert_array_equal(ring.gather(np.array([index])).obs, [[302.0]])


def test_sequences_have_no_weight_where_the_agent_was_absent():
    recurrent = RecurrentLayout(state_size=1, seq_len=4)
    memory = replay(recurrent=recurrent, batch_size=8)
    for step in steps(16):
        packed = np.concatenate([step.obs, np.zeros((AGENTS, 2))], 1, dtype=np.float32)
        memory.add(step._replace(obs=packed, next_obs=packed))
    for _ in range(50):
        batch = memory.sample(0)
        is_absent = batch.obs[:, 0] == NOTHING
        assert (batch.weight[is_absent] == 0).all()
        assert (batch.weight[~is_absent] > 0).all()


def test_a_replay_must_have_room_for_all_agents():
    with pytest.raises(LabError, match="max_size = 3: must be at least 4"):
        replay(max_size=3)
    with pytest.raises(LabError, match="batch_size = 4: must be more than 4"):
        replay(batch_size=4, use_cer=True)


def test_a_replay_of_sequences_must_have_room_for_one_of_all_agents():
    recurrent = RecurrentLayout(state_size=1, seq_len=9)
    with pytest.raises(LabError, match="max_size = 32: must be at least 36, one seq"):
        replay(recurrent=recurrent)


def test_a_sequence_of_all_agents_is_stored_before_the_first_event():
    memory = replay(recurrent=RecurrentLayout(state_size=1, seq_len=4))
    for step in steps(2):
        packed = np.zeros((AGENTS, 3), np.float32)
        memory.add(step._replace(obs=packed, next_obs=packed))
    assert memory.ready()
    with pytest.raises(LabError, match="training_start_step = 0: must be at least 16"):
        memory.take()


def test_ranks_with_fewer_samples_have_as_many_minibatches():
    assert even_sizes(11, 4) == [3, 3, 3, 2]
    assert sum(even_sizes(1000, 7)) == 1000
