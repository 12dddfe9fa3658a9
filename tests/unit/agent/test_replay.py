"""Replay memories against a plain list of transitions."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slm_lab.agent.batch import Act
from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.agent.memory.replay import Replay
from slm_lab.agent.memory.transition_ring import TransitionRing
from slm_lab.agent.replay_plan import ReplayPlan, TrainingSchedule
from slm_lab.spec.schema.memory import PrioritizedReplaySpec, ReplaySpec
from slm_lab.spec.schema.schedule import ScheduleSpec

NUM_ENVS, GAMMA = 3, 0.9
FLOAT, INT = np.dtype(np.float32), np.dtype(np.int64)


def layout(num_steps=1, frequency=1, start=0, **schedule):
    plan = ReplayPlan(TrainingSchedule(frequency, start, **schedule), GAMMA, num_steps, seed=0)
    return MemoryLayout(1, NUM_ENVS, (2,), FLOAT, (), INT, plan)


@dataclass
class Plain:
    """One step of one environment, as it was."""

    obs: np.ndarray
    action: int
    reward: float
    terminated: bool
    truncated: bool
    next_obs: np.ndarray


def fill(add, seed, num_steps):
    """Random steps with random endings, in buffers that are overwritten afterwards.

    Returns the steps (t, n) as they were; a unique first number tells observations apart.
    """
    rng = np.random.default_rng(seed)
    unique = iter(np.arange(1, 10**6, dtype=np.float32))

    def draw():
        return np.array([[next(unique), rng.normal()] for _ in range(NUM_ENVS)], np.float32)

    obs, kept = draw(), []
    for _ in range(num_steps):
        terminated, truncated = rng.random(NUM_ENVS) < 0.15, rng.random(NUM_ENVS) < 0.15
        next_obs, reward = draw(), rng.normal(size=NUM_ENVS).astype(np.float32)
        action = rng.integers(0, 4, NUM_ENVS)
        kept.append(
            [
                Plain(obs[n].copy(), int(action[n]), float(reward[n]), bool(terminated[n]),
                      bool(truncated[n]), next_obs[n].copy())
                for n in range(NUM_ENVS)
            ]
        )  # fmt: skip
        none = np.zeros(NUM_ENVS, np.float32)
        add(obs, Act(action, none, none, 0), reward, terminated, truncated, next_obs)
        following = np.where((terminated | truncated)[:, None], draw(), next_obs)
        for buffer in (obs, next_obs, reward, action):
            buffer[:] = 99
        obs = following
    return kept


def expected(kept, t, n, num_steps):
    """Obs, action, n-step reward, discount and next obs of one transition, by a plain loop."""
    reward, discount = 0.0, 1.0
    for step in range(t, min(t + num_steps, len(kept))):
        last = kept[step][n]
        reward += discount * last.reward
        discount *= GAMMA
        if last.terminated or last.truncated:
            break
    first = kept[t][n]
    return first.obs, first.action, reward, 0.0 if last.terminated else discount, last.next_obs


@given(
    seed=st.integers(0, 10_000),
    num_rows=st.integers(1, 12),
    count=st.integers(1, 40),
    num_steps=st.integers(1, 4),
)
@settings(max_examples=150)
def test_a_ring_reads_back_the_newest_steps_whatever_its_size(seed, num_rows, count, num_steps):
    ring = TransitionRing(layout(), num_rows, GAMMA, num_steps)
    kept = fill(ring.add, seed, count)
    stored = min(count, num_rows)
    assert ring.num_stored == stored * NUM_ENVS
    got = ring.gather(ring.place(np.arange(ring.num_stored)))
    for i in range(ring.num_stored):
        t, n = count - stored + i // NUM_ENVS, i % NUM_ENVS
        obs, action, reward, discount, next_obs = expected(kept, t, n, num_steps)
        np.testing.assert_array_equal(got.obs[i], obs)
        assert got.action[i] == action
        assert got.reward[i] == pytest.approx(reward, abs=1e-5)
        assert got.discount[i] == pytest.approx(discount, abs=1e-6)
        np.testing.assert_array_equal(got.next_obs[i], next_obs)
    assert len(ring._last_obs) <= ring.num_stored  # what was forgotten is freed


@given(seed=st.integers(0, 10_000), count=st.integers(1, 30), cut=st.integers(0, 30))
@settings(max_examples=60)
def test_a_ring_put_together_from_segments_reads_the_same(seed, count, cut):
    ring = TransitionRing(layout(), 8, GAMMA, 2)
    segments = []

    def add(*step):
        ring.add(*step)
        if ring.count == cut:
            segments.append(ring.content(0))

    fill(add, seed, count)
    segments.append(ring.content(cut if segments else 0))
    twin = TransitionRing(layout(), 8, GAMMA, 2)
    twin.load_state_dict(ring.state_dict())
    for segment in segments:
        twin.load_content(segment)
    places = ring.place(np.arange(ring.num_stored))
    for ours, theirs in zip(ring.gather(places), twin.gather(places), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_after_a_break_nothing_reaches_into_the_next_episodes():
    ring = TransitionRing(layout(), 8, GAMMA, num_steps=3)
    kept = fill(ring.add, 0, 3)
    stop = np.full((NUM_ENVS, 2), 7.0, np.float32)
    ring.break_off(stop)
    running = [not (s.terminated or s.truncated) for s in kept[-1]]
    fill(ring.add, 1, 3)
    got = ring.gather(ring.place(np.arange(2 * NUM_ENVS, 3 * NUM_ENVS)))
    for n in range(NUM_ENVS):
        assert got.reward[n] == pytest.approx(kept[-1][n].reward)
        np.testing.assert_array_equal(
            got.next_obs[n], stop[n] if running[n] else kept[-1][n].next_obs
        )
    assert any(running)


def replay(model=ReplaySpec, num_steps=1, batch_size=16, max_size=60, schedule=None, **keys):
    spec = model(batch_size=batch_size, max_size=max_size, **keys)
    return Replay.build(spec, layout(num_steps, **(schedule or {})))


def test_uniform_draws_reach_every_transition_alike():
    memory = replay(batch_size=50)
    fill(memory.add, 0, 30)  # the ring holds the last 20 steps
    counts = np.zeros(memory._ring.size)
    for _ in range(400):
        np.add.at(counts, memory.sample(0).index.numpy(), 1)
    share = counts[counts > 0] / counts.sum() * memory._ring.num_stored
    assert len(share) == memory._ring.num_stored
    assert share.min() > 0.7
    assert share.max() < 1.3


def test_combined_replay_puts_the_newest_transitions_into_every_batch():
    memory = replay(use_cer=True)
    kept = fill(memory.add, 0, 25)
    newest = {float(step.obs[0]) for step in kept[-1]}
    for _ in range(10):
        assert newest <= set(memory.sample(0).obs[:, 0].tolist())


def prioritized(**keys):
    return replay(PrioritizedReplaySpec, max_size=60, batch_size=60, **keys)


def test_new_transitions_are_as_likely_as_the_most_surprising_one():
    memory = prioritized()
    fill(memory.add, 0, 5)
    first = memory.sample(0).index.unique()
    memory.report_errors(first, torch.linspace(1.0, 9.0, len(first)))
    greatest = (9.0 + 1e-4) ** 0.6
    memory.add(*blank_step())
    priorities = memory._drawing._tree.priorities
    np.testing.assert_allclose(priorities[memory._ring.newest], greatest)
    np.testing.assert_array_equal(priorities[memory._ring.forgotten], 0.0)


def blank_step():
    none = np.zeros(NUM_ENVS, np.float32)
    obs, false = np.zeros((NUM_ENVS, 2), np.float32), np.zeros(NUM_ENVS, np.bool_)
    return obs, Act(np.zeros(NUM_ENVS, np.int64), none, none, 0), none, false, false, obs


def test_draws_are_in_proportion_to_the_errors_and_weights_undo_it():
    beta = ScheduleSpec(start_val=1.0)
    memory = prioritized(alpha=0.5, epsilon=0.0, beta=beta)
    fill(memory.add, 0, 10)
    places = memory._ring.place(np.arange(memory._ring.num_stored))
    error = np.arange(1.0, len(places) + 1)
    memory.report_errors(torch.from_numpy(places), torch.from_numpy(error))
    counts, weight_of = np.zeros(memory._ring.size), np.zeros(memory._ring.size)
    for _ in range(500):
        batch = memory.sample(0)
        np.add.at(counts, batch.index.numpy(), 1)
        weight_of[batch.index.numpy()] = (batch.weight / batch.weight.min()).numpy()
        assert batch.weight.max() == 1.0
    wanted = error**0.5 / (error**0.5).sum()
    np.testing.assert_allclose(counts[places] / counts.sum(), wanted, rtol=0.25)
    # With β = 1 a weight is inversely proportional to the probability.
    batch = memory.sample(0)
    probability = wanted[np.searchsorted(places, batch.index.numpy())]
    np.testing.assert_allclose(batch.weight.numpy(), probability.min() / probability, rtol=1e-5)


def test_what_was_overwritten_cannot_be_drawn():
    memory = prioritized()
    fill(memory.add, 0, 47)
    valid = set(memory._ring.place(np.arange(memory._ring.num_stored)).tolist())
    drawn = {i for _ in range(200) for i in memory.sample(0).index.tolist()}
    assert drawn <= valid


@pytest.mark.parametrize("model", [ReplaySpec, PrioritizedReplaySpec])
def test_every_row_written_once_leaves_the_draws_as_they_were_after_a_reload(model):
    memory, twin = replay(model), replay(model)
    fill(memory.add, 0, 33)
    index = memory.sample(0).index
    memory.report_errors(index, torch.rand(len(index)))
    twin.load_state_dict(memory.state_dict())
    twin._ring.load_content(memory._ring.content(0))
    for _ in range(5):
        ours, theirs = memory.sample(0), twin.sample(0)
        for name in ("obs", "action", "reward", "discount", "next_obs", "weight", "index"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize(
    ("schedule", "events"),
    [
        # num_envs = 3: stored counts 3, 6, 9, …, 30
        ({"frequency": 1}, [1] * 10),
        ({"frequency": 3}, [1] * 10),
        ({"frequency": 10}, [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]),
        ({"frequency": 1, "start": 10}, [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]),
        ({"frequency": 1, "start": 9, "batches_per_event": 4}, [0, 0, 4, 4, 4, 4, 4, 4, 4, 4]),
        ({"frequency": 1, "update_to_data": 0.5}, [1, 2, 1, 2, 1, 2, 1, 2, 1, 2]),
        ({"frequency": 1, "start": 6, "update_to_data": 2.0}, [0, 0, 6, 6, 6, 6, 6, 6, 6, 6]),
    ],
)
def test_training_falls_due_as_the_spec_says(schedule, events):
    memory = replay(schedule=schedule)
    seen = []

    def add(*step):
        memory.add(*step)
        seen.append(memory.take().num_batches if memory.ready() else 0)

    fill(add, 0, 10)
    assert seen == events
