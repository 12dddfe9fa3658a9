"""Self-imitation: the returns of past episodes, and the losses by hand."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slm_lab.agent.memory.imitation import PastEpisodes, ReturnRing
from slm_lab.agent.memory.sampler import UniformSampler
from slm_lab.session.experience import observed
from slm_lab.testing.play import Play
from tests.support import actor_critic, memory_layout, parse, ppo
from tests.unit.agent.algorithm.batches import build
from tests.unit.agent.algorithm.past_steps import rollout, stream

GAMMA = 0.9
LAYOUT = memory_layout((1,))


def past(size=10_000):
    ring = ReturnRing(size, GAMMA, LAYOUT)
    return PastEpisodes(
        ring, UniformSampler(ring, 0), batch_size=8, use_cer=False
    ), ring


def returns_by_hand(obs, reward, terminated, truncated):
    """{first number of the observation: return} of the steps of all episodes that have
    ended and had a positive reward."""
    known = {}
    done = terminated | truncated
    for n in range(reward.shape[1]):
        ends = (np.flatnonzero(done[:, n]) + 1).tolist()
        for start, end in pairwise([0, *ends]):
            if (reward[start:end, n] > 0).any():
                for t in range(start, end):
                    powers = GAMMA ** np.arange(end - t)
                    known[float(obs[t, n, 0])] = float(powers @ reward[t:end, n])
    return known


@given(
    seed=st.integers(0, 10_000),
    num_envs=st.integers(1, 3),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
)
@settings(max_examples=60)
def test_returns_are_the_rewards_that_followed_however_rollouts_cut_the_episodes(
    seed, num_envs, lengths
):
    steps = stream(seed, sum(lengths), num_envs)
    memory, ring = past()
    begin = 0
    for length in lengths:
        memory.add(rollout(*(x[begin : begin + length] for x in steps)))
        begin += length
    places = ring.indices(np.arange(ring.num_stored))
    stored = dict(
        zip(
            ring.arrays["obs"][places, 0].tolist(),
            ring.arrays["returns"][places],
            strict=True,
        )
    )
    wanted = returns_by_hand(*steps)
    assert stored.keys() == wanted.keys()
    for key, value in wanted.items():
        assert stored[key] == pytest.approx(value, rel=1e-4, abs=1e-4)


@given(seed=st.integers(0, 10_000), lengths=st.lists(st.integers(1, 6), min_size=3))
@settings(max_examples=60)
def test_no_return_crosses_a_rollout_in_which_agents_were_absent(seed, lengths):
    """Such a rollout is one column. Returns before and after it are those of steps that
    follow one another."""
    lengths = lengths[:8]
    steps = stream(seed, sum(lengths), 3)
    _, reward, terminated, truncated = steps
    memory, ring = past()
    begin = 0
    for number, length in enumerate(lengths):
        part = slice(begin, begin + length)
        begin += length
        whole = [x[part] for x in steps]
        taken = rollout(*whole)
        if number % 2:
            absent = torch.zeros(length, 3, dtype=torch.bool)
            absent[:, 2] = True
            taken = taken.without(absent, packed=False)
            truncated[begin - 1, :2] |= ~terminated[begin - 1, :2]
            reward[part, 2] = np.nan
        memory.add(taken)
    places = ring.indices(np.arange(ring.num_stored))
    numbers = ring.arrays["obs"][places, 0].astype(int)
    done = terminated | truncated
    for number, value in zip(numbers, ring.arrays["returns"][places], strict=True):
        t, n = divmod(number, 10)
        end = t + int(done[t:, n].argmax()) + 1
        powers = GAMMA ** np.arange(end - t)
        wanted = float(powers @ reward[t:end, n])
        assert value == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_combined_replay_brings_one_new_step_and_leaves_the_rest_to_the_past():
    ring = ReturnRing(1000, 0.0, LAYOUT)  # with a γ of 0 a reward is a return
    memory = PastEpisodes(ring, UniformSampler(ring, 0), batch_size=8, use_cer=True)
    for episode in range(50):
        shape = (20, *LAYOUT.obs_shape)
        returns = 100 * episode + np.arange(20, dtype=np.float32)
        ring.add(
            np.zeros(shape, np.float32), np.zeros(20, LAYOUT.action_dtype), returns
        )
    drawn = memory.sample(0).reward
    assert drawn[-1] == 4919
    assert (drawn[:-1] < 4900).any()


def test_a_full_ring_keeps_the_newest_steps():
    ring = ReturnRing(5, 0.0, LAYOUT)
    for block in ([1, 2, 3], [4, 5, 6, 7], [8], list(range(10, 20))):
        values = np.array(block, np.float32)
        ring.add(values[:, None], np.zeros(len(block), np.int64), values)
        ages = np.arange(ring.num_stored)
        assert set(ring.arrays["returns"][ring.newest]) <= set(values)
    assert ring.arrays["returns"][ring.indices(ages)].tolist() == [15, 16, 17, 18, 19]


def test_a_dropped_episode_does_not_continue_into_the_next():
    obs, reward, terminated, truncated = stream(0, 4, 1)
    terminated[:] = False
    truncated[:] = False
    memory, ring = past()
    memory.add(rollout(obs, reward, terminated, truncated))
    memory.drop_running()
    terminated = np.array([[False], [True]])
    memory.add(rollout(obs[:2], np.abs(reward[:2]), terminated, np.zeros((2, 1), bool)))
    assert ring.num_stored == 2


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_an_episode_of_costs_alone_is_no_example(ending):
    """A sum of costs that was cut off looks better than any whole one."""
    obs, reward, terminated, truncated = stream(0, 4, 1)
    terminated[:] = False
    truncated[:] = False
    {"terminated": terminated, "truncated": truncated}[ending][-1] = True
    memory, ring = past()
    memory.add(rollout(obs, np.minimum(reward, 0.0), terminated, truncated))
    assert ring.num_stored == 0
    reward[0] = 1.0
    memory.add(rollout(obs, reward, terminated, truncated))
    assert ring.num_stored == 4


MEMORY = {
    "name": "OnPolicyBatchReplay",
    "sil_replay_name": "Replay",
    "batch_size": 4,
    "max_size": 100,
}


@pytest.mark.parametrize("base", [actor_critic, ppo])
def test_imitation_without_weight_is_the_inner_algorithm(base):
    """Same parameters, bit for bit, when both coefficients are zero: Adam takes no step
    then."""
    name = "PPOSIL"
    if base is actor_critic:
        name = "SIL"
    sgd = {"agent__net__optim_spec": {"name": "SGD", "lr": 0.01}}
    plain, env = build(base(**sgd))
    imitating, _ = build(
        base(
            **sgd,
            agent__algorithm__name=name,
            agent__algorithm__sil_policy_loss_coef=0.0,
            agent__algorithm__sil_val_loss_coef=0.0,
            agent__memory=MEMORY,
        )
    )
    obs = env.reset()
    for frame in range(0, 400, 4):
        acts = [agent.act(obs, frame) for agent in (plain, imitating)]
        np.testing.assert_array_equal(acts[0].action, acts[1].action)
        step = env.step(acts[0].action)
        for agent, act in zip((plain, imitating), acts, strict=True):
            agent.observe(observed(obs, act, step))
            agent.learn(frame)
        obs = step.obs
    for name, flat in plain.learner.flats.items():
        assert torch.equal(flat.vector, imitating.learner.flats[name].vector)
    assert imitating.learner.opt_step > plain.learner.opt_step > 0


@pytest.mark.parametrize(("name", "base"), [("SIL", actor_critic), ("PPOSIL", ppo)])
def test_a_learner_in_place_of_one_that_died_counts_its_steps_on(name, base):
    """`opt_step` is then set to that of the last row."""
    data = base(agent__algorithm__name=name, agent__memory=MEMORY)
    plain, replaced = (Play(parse(data)) for _ in range(2))
    replaced.agent.learner.opt_step = 1000
    for play in (plain, replaced):
        next(play.reports(100))
        play.env.close()
    assert replaced.agent.learner.opt_step - 1000 == plain.agent.learner.opt_step > 0
