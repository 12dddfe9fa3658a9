"""The memory of whole episodes against a plain list of them."""

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given, settings

from slm_lab.agent.batch import Act, VectorStep
from slm_lab.agent.memory.episodes import OnPolicyReplay
from tests.support import memory_layout

NUM_ENVS = 4


def memory(wanted: int = 3, best_fraction: float = 1.0) -> OnPolicyReplay:
    layout = memory_layout((1,), horizon=wanted, num_envs=NUM_ENVS)
    return OnPolicyReplay(layout, best_fraction)


class Environments:
    """Observations that name environment, episode and step; endings by a seeded
    generator."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.episode = np.zeros(NUM_ENVS, int)
        self.t = np.zeros(NUM_ENVS, int)
        self.running: list[list[float]] = [[] for _ in range(NUM_ENVS)]
        self.finished: list[tuple[list[float], float, bool]] = []

    def obs(self) -> np.ndarray:
        names = np.arange(NUM_ENVS) * 1e4 + self.episode * 100 + self.t
        return names.astype(np.float32)[:, None]

    def step_into(self, *stores: OnPolicyReplay) -> None:
        obs = self.obs()
        self.t += 1
        next_obs = self.obs()
        terminated = self.rng.random(NUM_ENVS) < 0.15
        truncated = (self.rng.random(NUM_ENVS) < 0.15) & ~terminated
        act = Act(np.zeros(NUM_ENVS, np.int64), obs[:, 0] + 0.5, obs[:, 0] + 0.25, 7)
        reward = self.rng.normal(size=NUM_ENVS).astype(np.float32)
        for store in stores:
            store.add(
                VectorStep(
                    obs=obs,
                    act=act,
                    reward=reward,
                    terminated=terminated,
                    truncated=truncated,
                    next_obs=next_obs,
                )
            )
        for n in range(NUM_ENVS):
            self.running[n].append(float(obs[n, 0]))
            if terminated[n] or truncated[n]:
                self.finished.append(
                    (self.running[n], float(next_obs[n, 0]), bool(truncated[n]))
                )
                self.running[n] = []
                self.episode[n] += 1
                self.t[n] = 0
        for buffer in (obs, next_obs, reward, act.log_prob, act.value):
            buffer[:] = -1


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50)
def test_a_batch_is_the_finished_episodes_one_after_the_other(seed):
    store = memory()
    envs = Environments(seed)
    for _ in range(3):
        while not store.ready():
            envs.step_into(store)
        batch = store.take()
        episodes = envs.finished
        envs.finished = []
        assert len(episodes) >= 3
        expected = [name for steps, _, _ in episodes for name in steps]
        assert batch.obs.shape == (len(expected), 1, 1)
        assert batch.obs.flatten().tolist() == expected
        assert batch.done.flatten().sum() == len(episodes)
        assert (batch.version == 7).all()
        torch.testing.assert_close(batch.value, batch.obs.squeeze(-1) + 0.25)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50)
def test_next_values_are_those_of_the_states_that_steps_ended_in(seed):
    store = memory()
    envs = Environments(seed)
    while not store.ready():
        envs.step_into(store)
    batch = store.take()
    next_value = batch.next_value(batch.bootstrap_obs[:, 0]).flatten()
    t = 0
    for steps, last_obs, truncated in envs.finished:
        following = [name + 0.25 for name in steps[1:]]
        assert next_value[t : t + len(steps) - 1].tolist() == following
        if truncated:
            assert next_value[t + len(steps) - 1].item() == last_obs
        t += len(steps)


def test_episodes_that_still_run_are_kept_whole_for_a_later_batch():
    store = memory(wanted=1)
    envs = Environments(0)
    seen: list[float] = []
    for _ in range(200):
        envs.step_into(store)
        if store.ready():
            seen += store.take().obs.flatten().tolist()
    expected = [name for steps, _, _ in envs.finished for name in steps]
    assert sorted(seen) == sorted(expected)


def test_the_cross_entropy_method_learns_from_the_best_episodes():
    everything = memory(8)
    best = memory(8, best_fraction=0.25)
    envs = Environments(3)
    while not everything.ready():
        envs.step_into(everything, best)
    all_episodes = everything.take()
    kept = best.take()

    def returns(batch):
        ends = batch.done.flatten().nonzero().flatten().tolist()
        starts = [0, *(end + 1 for end in ends[:-1])]
        rewards = batch.reward.flatten()
        return [
            rewards[a : b + 1].sum().item() for a, b in zip(starts, ends, strict=True)
        ]

    ranked = sorted(returns(all_episodes), reverse=True)
    number = -(-len(ranked) // 4)
    assert returns(kept) == ranked[:number]
