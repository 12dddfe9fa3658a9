"""Replay memories against a plain list of transitions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from slm_lab.agent.batch import Act
from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.agent.memory.replay import Replay
from slm_lab.agent.memory.transition_ring import TransitionRing
from slm_lab.agent.recurrent_state import RecurrentLayout, pack_obs
from slm_lab.agent.replay_config import ReplayConfig, TrainingSchedule
from slm_lab.spec.schema.memory import PrioritizedReplaySpec, ReplaySpec
from slm_lab.spec.schema.schedule import ScheduleSpec
from tests.unit.agent.stream import GAMMA, NUM_ENVS, assert_are, assert_reads, fill, layout

STACKS = st.sampled_from([1, 2, 4])
ENDS = st.sampled_from([0.0, 0.02, 0.15, 0.6])


@given(
    seed=st.integers(0, 10_000),
    num_rows=st.integers(1, 12),
    count=st.integers(1, 40),
    num_steps=st.integers(1, 4),
    stack=STACKS,
    ends=ENDS,
)
@settings(max_examples=300)
def test_a_ring_reads_back_the_newest_steps_whatever_its_size(
    seed, num_rows, count, num_steps, stack, ends
):
    """Also the first stack of an episode, whatever it was filled with, and the last."""
    ring = TransitionRing(layout(stack=stack), num_rows, GAMMA, num_steps)
    kept = fill(ring.add, seed, count, stack, ends)
    assert ring.num_stored == min(count, num_rows) * NUM_ENVS
    assert_reads(ring, kept, num_steps)


@given(
    model=st.sampled_from([ReplaySpec, PrioritizedReplaySpec]),
    num_envs=st.integers(1, 5),
    seed=st.integers(0, 10_000),
    num_rows=st.integers(4, 12),
    count=st.integers(1, 50),
    num_steps=st.integers(1, 4),
    stack=STACKS,
    ends=ENDS,
)
@settings(max_examples=200)
def test_a_memory_draws_transitions_of_a_plain_list_over_several_wraps(
    model, num_envs, seed, num_rows, count, num_steps, stack, ends
):
    """Whatever is drawn is what the list has there, for any number of environments."""
    spec = model(batch_size=4, max_size=num_rows * num_envs)
    memory = Replay.build(spec, layout(num_steps, stack=stack, num_envs=num_envs))
    kept = fill(memory.add, seed, count, stack, ends, num_envs)
    ring = memory._ring
    assert ring.num_stored == min(count, num_rows) * num_envs
    age_of = {int(place): age for age, place in enumerate(ring.indices(np.arange(ring.num_stored)))}
    for frame in range(4):
        batch = memory.sample(frame)
        ages = [age_of[place] for place in batch.index.tolist()]
        assert_are(batch, ages, ring, kept, num_steps)
        memory.update_priorities(batch.index, batch.reward)


@pytest.mark.parametrize("stack", [1, 4])
def test_what_was_forgotten_is_freed(stack):
    ring = TransitionRing(layout(stack=stack), 10, GAMMA, 1)
    fill(ring.add, 0, 200, stack, ends=0.5)
    kept = ring.capacity * NUM_ENVS
    assert 0 < len(ring._obs._last) <= kept
    if stack > 1:
        assert 0 < len(ring._obs._before) <= kept


@given(
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.integers(1, 39), max_size=5),
    count=st.integers(1, 40),
    stack=STACKS,
    ends=ENDS,
)
@settings(max_examples=150)
def test_a_ring_put_together_from_segments_reads_the_same_and_goes_on_the_same(
    seed, cuts, count, stack, ends
):
    """Each segment begins with the last step of the one before."""
    ring = TransitionRing(layout(stack=stack), 8, GAMMA, 2)
    segments, steps = [], []
    end = 0

    def save():
        nonlocal end
        segments.append(ring.content(max(end - 1, ring.first), ring.count))
        end = ring.count

    def add(obs, act, *rest):
        step = [obs, Act(*(a.copy() for a in act[:3]), 0), *rest]
        steps.append([step[0].copy(), step[1], *(array.copy() for array in rest)])
        if len(steps) <= count:
            ring.add(*step)
            if ring.count in cuts:
                save()

    fill(add, seed, count + 10, stack, ends)
    save()
    twin = TransitionRing(layout(stack=stack), 8, GAMMA, 2)
    fill(twin.add, seed + 1, 13, stack)  # what it held before does not show
    twin.load_state_dict(ring.state_dict())
    for segment in segments:
        twin.load_content(segment)
    assert_alike(ring, twin)
    for step in steps[count:]:
        ring.add(*step)
        twin.add(*step)
        assert_alike(ring, twin)


def assert_alike(ring, twin):
    places = ring.indices(np.arange(ring.num_stored))
    for ours, theirs in zip(ring.gather(places), twin.gather(places), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("stack", [1, 3])
def test_after_a_break_nothing_reaches_into_the_next_episodes(stack):
    ring = TransitionRing(layout(stack=stack), 8, GAMMA, num_steps=3)
    kept = fill(ring.add, 0, 3, stack)
    running = [not (s.terminated or s.truncated) for s in kept[-1]]
    assert any(running)
    stop = np.stack([step.next_obs for step in kept[-1]])
    ring.break_off(stop)
    for step in kept[-1]:
        step.truncated |= not step.terminated
    assert_reads(ring, kept + fill(ring.add, 1, 3, stack), 3)


def test_a_stack_is_stored_as_one_frame():
    """A million steps of 84 × 84 bytes, four in a stack, are 7.06 GB and little more."""
    asked = []

    def allocate(shape, dtype):
        asked.append(np.prod(shape, dtype=np.int64) * dtype.itemsize)
        return np.broadcast_to(np.zeros((), dtype), shape)

    atari = MemoryLayout(
        1, 8, (4, 84, 84), np.dtype(np.uint8), (), np.dtype(np.int64), frame_stack=4
    )
    TransitionRing(atari, 10**6 // 8, GAMMA, 1, allocate)
    assert sum(asked) < 7.08e9


def replay(
    model=ReplaySpec, num_steps=1, batch_size=16, max_size=60, schedule=None, stack=1, **keys
):
    spec = model(batch_size=batch_size, max_size=max_size, **keys)
    return Replay.build(spec, layout(num_steps, stack=stack, **(schedule or {})))


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


def with_errors(memory, error):
    """The places of all that is stored, oldest first, once each has this error, (K,)."""
    places = memory._ring.indices(np.arange(memory._ring.num_stored))
    memory.update_priorities(torch.from_numpy(places), torch.from_numpy(error))
    return places


def combined(model, batch_size=12, **keys):
    """A memory of 60 transitions, the newest part of every batch, and the errors 1 to 60."""
    if model is PrioritizedReplaySpec:
        keys = {"alpha": 1.0, "epsilon": 0.0, "beta": ScheduleSpec(start_val=1.0), **keys}
    memory = replay(model, batch_size=batch_size, max_size=60, use_cer=True, **keys)
    fill(memory.add, 0, 30)
    return memory, with_errors(memory, np.arange(1.0, 61.0))


@pytest.mark.parametrize("model", [ReplaySpec, PrioritizedReplaySpec])
def test_the_newest_transitions_take_the_place_of_no_others(model):
    """What is left of a batch is drawn from all that is stored, as without them."""
    memory, places = (
        combined(model, alpha=0.0) if model is PrioritizedReplaySpec else combined(model)
    )
    counts = np.zeros(memory._ring.size)
    for _ in range(1000):
        index = memory.sample(0).index.numpy()
        np.testing.assert_array_equal(index[-NUM_ENVS:], memory._ring.newest)
        np.add.at(counts, index[:-NUM_ENVS], 1)
    assert counts.sum() == counts[places].sum()
    assert chi_squared(counts[places], np.ones(60)) < 1


def test_the_newest_transitions_weigh_what_a_uniform_draw_does():
    """They were not drawn by their priority, so there is no bias to undo: with β = 1 the weights of
    all others stand to theirs as 1 / (N P(i)) to 1."""
    memory, places = combined(PrioritizedReplaySpec)
    probability = np.zeros(memory._ring.size)
    probability[places] = np.arange(1.0, 61.0) / np.arange(1.0, 61.0).sum()
    for _ in range(20):
        batch = memory.sample(0)
        weight, index = batch.weight.numpy(), batch.index.numpy()
        assert weight.max() == 1.0
        np.testing.assert_array_equal(weight[-NUM_ENVS:], weight[-1])
        relative = weight / weight[-1]
        drawn = slice(0, -NUM_ENVS)
        np.testing.assert_allclose(relative[drawn], 1 / (60 * probability[index[drawn]]), rtol=1e-5)


def test_combined_prioritised_replay_estimates_what_combined_uniform_replay_does():
    """With the whole correction: the mean of anything over weighted batches, on average."""
    value = np.random.default_rng(0).normal(size=60)
    means = []
    for model in (ReplaySpec, PrioritizedReplaySpec):
        memory, places = combined(model)
        value_at = np.zeros(memory._ring.size)
        value_at[places] = value
        found = []
        for _ in range(3000):
            batch = memory.sample(0)
            weight = 1.0 if batch.weight is None else (batch.weight / batch.weight[-1]).numpy()
            found.append((weight * value_at[batch.index.numpy()]).mean())
        means.append((np.mean(found), np.std(found) / len(found) ** 0.5))
    (uniform, error), (by_priority, other_error) = means
    assert abs(uniform - by_priority) < 4 * (error + other_error)
    newest = value[-NUM_ENVS:].sum() / 12 + value.mean() * (12 - NUM_ENVS) / 12
    assert abs(by_priority - newest) < 4 * other_error


def prioritized(**keys):
    return replay(PrioritizedReplaySpec, max_size=60, batch_size=60, **keys)


def test_new_transitions_are_as_likely_as_the_most_surprising_one():
    memory = prioritized()
    fill(memory.add, 0, 5)
    first = memory.sample(0).index.unique()
    memory.update_priorities(first, torch.linspace(1.0, 9.0, len(first)))
    greatest = (9.0 + 1e-4) ** 0.6
    memory.add(*blank_step())
    priorities = memory._sampler._tree.priorities
    np.testing.assert_allclose(priorities[memory._ring.newest], greatest)
    np.testing.assert_array_equal(priorities[memory._ring.overwritten], 0.0)


def test_errors_of_zero_without_an_epsilon_leave_every_transition_drawable_and_weights_finite():
    memory = prioritized(epsilon=0.0, beta=ScheduleSpec(start_val=1.0))
    fill(memory.add, 0, 10)
    index = memory.sample(0).index.unique()
    for _ in range(20):
        index = torch.cat([index, memory.sample(0).index]).unique()
    memory.update_priorities(index, torch.zeros(len(index)))
    drawn = torch.cat([memory.sample(0).index for _ in range(20)])
    assert len(drawn.unique()) > 1
    assert torch.isfinite(memory.sample(0).weight).all()


def blank_step():
    none = np.zeros(NUM_ENVS, np.float32)
    obs, false = np.zeros((NUM_ENVS, 2), np.float32), np.zeros(NUM_ENVS, np.bool_)
    return obs, Act(np.zeros(NUM_ENVS, np.int64), none, none, 0), none, false, false, obs


def draws_by_priority(priority, draws):
    """How often each was drawn, (K,), in batches of 256."""
    alpha = 0.6
    memory = replay(
        PrioritizedReplaySpec, max_size=len(priority), batch_size=256, alpha=alpha, epsilon=0.0
    )
    fill(memory.add, 0, len(priority) // NUM_ENVS + 50)
    places = memory._ring.indices(np.arange(len(priority)))
    memory.update_priorities(torch.from_numpy(places), torch.from_numpy(priority ** (1 / alpha)))
    counts = np.zeros(memory._ring.size)
    for _ in range(draws // 256):
        np.add.at(counts, memory.sample(0).index.numpy(), 1)
    assert counts.sum() == counts[places].sum()
    return counts[places]


def chi_squared(counts, priority):
    """Pearson's statistic of `counts` (K,), in units of what it reaches once in 1000 times.

    The quantile is Wilson and Hilferty's, better than 0.1 % for so many degrees of freedom.
    """
    wanted = priority / priority.sum() * counts.sum()
    freedom, z = len(counts) - 1, 3.0902
    spread = 2 / (9 * freedom)
    limit = freedom * (1 - spread + z * spread**0.5) ** 3
    return ((counts - wanted) ** 2 / wanted).sum() / limit


def test_a_thousand_priorities_over_three_orders_of_magnitude_are_drawn_as_often_as_they_say():
    """And no other priorities would do, though draws by strata vary less than free ones."""
    priority = np.random.default_rng(0).permutation(np.geomspace(1.0, 1000.0, 1002))
    counts = draws_by_priority(priority, 200_000)
    assert chi_squared(counts, priority) < 1
    for wrong in (priority**0.95, priority**1.05, priority + 5.0, np.roll(priority, 1)):
        assert chi_squared(counts, wrong) > 1


def test_draws_are_in_proportion_to_the_errors_and_weights_undo_it():
    beta = ScheduleSpec(start_val=1.0)
    memory = prioritized(alpha=0.5, epsilon=0.0, beta=beta)
    fill(memory.add, 0, 10)
    places = memory._ring.indices(np.arange(memory._ring.num_stored))
    error = np.arange(1.0, len(places) + 1)
    memory.update_priorities(torch.from_numpy(places), torch.from_numpy(error))
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


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("model", [ReplaySpec, PrioritizedReplaySpec])
@pytest.mark.parametrize("count", [3, 20, 21, 23, 24, 47])
def test_all_that_is_kept_can_be_drawn_and_nothing_else(model, stack, count):
    """Also not the steps behind it that are there only for the stacks that reach back to them."""
    memory = replay(model, batch_size=60, stack=stack)
    fill(memory.add, 0, count, stack)
    assert memory._ring.num_stored == 3 * min(count, 20)
    valid = set(memory._ring.indices(np.arange(memory._ring.num_stored)).tolist())
    drawn = {i for _ in range(60) for i in memory.sample(0).index.tolist()}
    assert drawn == valid


@pytest.mark.parametrize("model", [ReplaySpec, PrioritizedReplaySpec])
def test_every_row_written_once_leaves_the_draws_as_they_were_after_a_reload(model):
    memory, twin = replay(model), replay(model)
    fill(memory.add, 0, 33)
    index = memory.sample(0).index
    memory.update_priorities(index, torch.rand(len(index)))
    twin.load_state_dict(memory.state_dict())
    for _ in range(5):
        ours, theirs = memory.sample(0), twin.sample(0)
        for name in ("obs", "action", "reward", "discount", "next_obs", "weight", "index"):
            assert_close(getattr(ours, name), getattr(theirs, name), rtol=0, atol=0)


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


@pytest.mark.parametrize("start", [0, 1, 10, 12, 100])
@pytest.mark.parametrize(
    ("schedule", "ratio"),
    [
        ({"frequency": 1}, 1 / 3),  # at most one event per step of three environments
        ({"frequency": 3, "batches_per_event": 4}, 4 / 3),
        ({"frequency": 12, "batches_per_event": 2}, 2 / 12),
        ({"frequency": 1, "update_to_data": 0.5}, 0.5),
        ({"frequency": 1, "update_to_data": 2.0}, 2.0),
        ({"frequency": 16, "update_to_data": 0.25}, 0.25),
    ],
)
def test_batches_per_transition_since_training_began_are_what_the_spec_amounts_to(
    start, schedule, ratio
):
    """From the first event on, however long the memory was filled before, and after a reload."""
    memory = replay(schedule={**schedule, "start": start})
    drawn, ratios = 0, []

    def add(*step):
        nonlocal drawn
        memory.add(*step)
        if memory.ready():
            drawn += memory.num_batches
            ratios.append((drawn, memory.num_trained_on))

    fill(add, 0, 80)
    assert len(ratios) > 5
    for batches, transitions in ratios:
        due = ratio * transitions
        assert batches == (int(due) if "update_to_data" in schedule else pytest.approx(due))
    twin = replay(schedule={**schedule, "start": start})
    twin.load_state_dict(memory.state_dict())
    assert twin.num_trained_on == memory.num_trained_on > 0


def test_events_that_are_not_equally_far_apart_are_so_on_average():
    memory = replay(schedule={"frequency": 10, "start": 25})
    drawn = 0

    def add(*step):
        nonlocal drawn
        memory.add(*step)
        drawn += memory.num_batches

    fill(add, 0, 400)
    assert drawn / memory.num_trained_on == pytest.approx(1 / 10, rel=0.01)


@pytest.mark.parametrize(("start", "steps"), [(0, 1), (1, 1), (3, 1), (10, 4)])
@pytest.mark.parametrize("model", [ReplaySpec, PrioritizedReplaySpec])
def test_who_trains_freely_waits_for_something_to_draw(model, start, steps):
    memory = replay(model, schedule={"frequency": 1, "start": start})
    memory.train_freely()
    ready = [memory.ready()]
    fill(lambda *step: (memory.add(*step), ready.append(memory.ready())), 0, 5)
    assert ready == [False] * steps + [True] * (6 - steps)
    assert memory.num_trained_on > 0


def sequences(num_envs, seq_len, max_size=200):
    """A memory of rows [observation, state, mark] from which sequences are drawn."""
    plan = ReplayConfig(TrainingSchedule(1, 0), GAMMA, 1, 0, RecurrentLayout(1, seq_len))
    rows, action = (3,), np.dtype(np.int64)
    layout = MemoryLayout(1, num_envs, rows, np.dtype(np.float32), (), action, plan)
    return Replay.build(ReplaySpec(batch_size=40 * seq_len, max_size=max_size), layout)


def add_row(memory, number, begins=False):
    """One step of an endless episode of every environment, in the order of `number`."""
    num_envs = memory._ring.num_envs
    obs = np.full((num_envs, 1), number, np.float32)
    none, no = np.zeros(num_envs, np.float32), np.zeros(num_envs, np.bool_)
    row = pack_obs(obs, obs / 10, np.full(num_envs, begins))
    following = pack_obs(obs + 1, (obs + 1) / 10, ~no)
    memory.add(row, Act(np.zeros(num_envs, np.int64), none, none, 0), none, no, no, following)
    return row, following


def test_who_trains_freely_on_sequences_waits_for_a_whole_one():
    memory = sequences(num_envs=2, seq_len=3)
    memory.train_freely()
    ready = []
    for number in range(4):
        add_row(memory, number, begins=number == 0)
        ready.append(memory.ready())
    assert ready == [False, False, True, True]


@pytest.mark.parametrize("reloads", [False, True])
def test_no_sequence_continues_over_a_break(reloads):
    """Rows 0 to 3 and 4 to 7 are unrolls of two actors, in the middle of their episodes."""
    memory = sequences(num_envs=2, seq_len=3)
    for number in range(4):
        _, end = add_row(memory, number, begins=number == 0)
    memory.break_off(end)
    if reloads:
        state, memory = memory.state_dict(), sequences(num_envs=2, seq_len=3)
        memory.load_state_dict(state)
    for number in range(4, 8):
        row, _ = add_row(memory, number)
        assert not row[:, -1].any(), "the caller's rows stay as they are"
    batch = memory.sample(0)
    first, second, third = batch.obs.reshape(-1, 3, 3).unbind(1)
    assert set(first[:, 0].tolist()) == {0, 1, 2, 3, 4, 5}
    for later in (second, third):
        assert_close(later[:, -1], (later[:, 0] == 4).float())
    assert (first[:, -1] == 1).all()
    assert_close(batch.obs[:, 1], batch.obs[:, 0] / 10, rtol=0, atol=1e-6)
    assert_close(batch.next_obs[:, -1], batch.obs[:, -1])
