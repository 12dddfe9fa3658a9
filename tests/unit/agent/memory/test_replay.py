"""Replay memories against a plain list of transitions."""

import copy
import pickle
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from torch.testing import assert_close

from slm_lab.agent.batch import Act, VectorStep
from slm_lab.agent.from_spec.memory import build_memory
from slm_lab.agent.memory.memory import ReplayConfig, TrainingSchedule
from slm_lab.agent.memory.transition_ring import TransitionRing
from slm_lab.agent.recurrent_state import RecurrentLayout, pack_obs
from slm_lab.spec.schema.memory import PrioritizedReplaySpec, ReplaySpec
from slm_lab.testing.play import load_whole, whole
from tests.support import memory_layout
from tests.unit.agent.stream import (
    GAMMA,
    NUM_ENVS,
    assert_is,
    assert_reads,
    fill,
    layout,
)

STACKS = st.sampled_from([1, 2, 4])
ENDS = st.sampled_from([0.0, 0.02, 0.15, 0.6])
BOTH = pytest.mark.parametrize("model", [ReplaySpec, PrioritizedReplaySpec])


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
    """Also the first stack of an episode, with any filling, and the last."""
    ring = TransitionRing(layout(stack=stack), num_rows, GAMMA, num_steps)
    kept = fill(ring.add, seed, count, stack, ends)
    assert ring.num_stored == min(count, num_rows) * NUM_ENVS
    assert_reads(ring, kept, num_steps)


@given(
    seed=st.integers(0, 10_000),
    unrolls=st.lists(
        st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=12
    ),
    steps_of_unroll=st.integers(1, 5),
    num_rows=st.integers(2, 40),
    num_steps=st.integers(1, 4),
    stack=STACKS,
    ends=ENDS,
    num_saved=st.integers(0, 12),
)
@settings(max_examples=60)
def test_unrolls_of_several_actors_read_as_the_stream_of_each_alone(
    seed, unrolls, steps_of_unroll, num_rows, num_steps, stack, ends, num_saved
):
    """Also in a ring that is restored from two segments and then filled further. An
    actor that was replaced begins anew."""

    def new_ring():
        ring = TransitionRing(layout(stack=stack), num_rows, GAMMA, num_steps)
        ring.join_pieces()
        return ring

    ring = new_ring()
    twin = new_ring()
    segments = []
    saved = 0
    streams = {}
    kept = {}
    order = []
    for turn, (actor, is_replaced) in enumerate(unrolls):
        begins = is_replaced or actor not in streams
        if begins:
            life = seed + 100 * turn
            streams[actor] = life, iter(stream(life, 12 * steps_of_unroll, stack, ends))
            kept[life] = []
        life, steps = streams[actor]
        played, plain = zip(*islice(steps, steps_of_unroll), strict=True)
        if turn in (num_saved // 2, num_saved):
            segments.append(ring.content(max(ring.first, saved), ring.count))
            saved = ring.count
        if turn == num_saved:
            restore(twin, ring.state_dict(), segments)
        put_unroll(ring, actor, begins, played)
        if turn >= num_saved:
            put_unroll(twin, actor, begins, played)
        order += [(life, len(kept[life]) + t) for t in range(steps_of_unroll)]
        kept[life] += plain
    for each in (ring, twin)[: 1 + (num_saved < len(unrolls))]:
        got = each.gather(each.indices(np.arange(each.num_stored)))
        for i in range(each.num_stored):
            life, t = order[len(order) - each.num_stored // NUM_ENVS + i // NUM_ENVS]
            assert_is(got, i, kept[life], t, i % NUM_ENVS, num_steps)


def put_unroll(ring, actor, begins, played):
    if not begins:
        ring.begin_piece(actor)
    for step in played:
        ring.add(step)
    ring.end_piece(actor, played[-1].next_obs)


def restore(ring, state, segments):
    ring.load_state_dict(state)
    for segment in segments:
        ring.load_content(segment)


def stream(seed, num_steps, stack, ends):
    """Steps, each with the same in plain form."""
    steps = []
    kept = fill(
        lambda step: steps.append(copy.deepcopy(step)), seed, num_steps, stack, ends
    )
    return zip(steps, kept, strict=True)


@pytest.mark.parametrize("stack", [1, 4])
def test_memory_of_forgotten_steps_is_freed(stack):
    """A ring whose episodes never ended is as large as one whose ended ones are
    overwritten."""

    def size_after(*runs):
        ring = TransitionRing(layout(stack=stack), 10, GAMMA, 1)
        for steps, ends in runs:
            fill(ring.add, 0, steps, stack, ends)
        return len(pickle.dumps(ring))

    plain = size_after((50, 0.0))
    assert size_after((200, 0.5)) > plain + 500
    assert size_after((200, 0.5), (50, 0.0)) < plain + 100


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
    """A million steps of 84 × 84 bytes, four in a stack, are 7.06 GB and little
    more."""
    asked = []

    def allocate(shape, dtype):
        asked.append(np.prod(shape, dtype=np.int64) * dtype.itemsize)
        return np.broadcast_to(np.zeros((), dtype), shape)

    atari = memory_layout(
        (4, 84, 84), num_envs=8, obs_dtype=np.dtype(np.uint8), frame_stack=4
    )
    TransitionRing(
        layout=atari, num_rows=10**6 // 8, gamma=GAMMA, num_steps=1, allocate=allocate
    )
    assert sum(asked) < 7.08e9


def replay(
    model=ReplaySpec, batch_size=16, max_size=60, schedule=None, stack=1, **keys
):
    spec = model(batch_size=batch_size, max_size=max_size, **keys)
    return build_memory(spec, layout(stack=stack, **(schedule or {})))


@BOTH
@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("count", [3, 20, 21, 23, 24, 47])
def test_all_that_is_kept_can_be_drawn_and_nothing_else(model, stack, count):
    """Also not the steps behind it that are there only for the stacks that reach back
    to them."""
    memory = replay(model, batch_size=60, stack=stack)
    kept = fill(memory.add, 0, count, stack)
    drawn = {obs.tobytes() for _ in range(60) for obs in memory.sample(0).obs.numpy()}
    assert drawn == {step.obs.tobytes() for steps in kept[-20:] for step in steps}


@BOTH
def test_combined_replay_puts_the_newest_transitions_behind_every_batch(model):
    memory = replay(model, use_cer=True)
    kept = fill(memory.add, 0, 25)
    for _ in range(10):
        newest = memory.sample(0).obs[-NUM_ENVS:].numpy()
        assert_array_equal(newest, [step.obs for step in kept[-1]])


@pytest.mark.parametrize(
    ("schedule", "events"),
    [
        # num_envs = 3: stored counts 3, 6, 9, …, 30
        ({"frequency": 1}, [1] * 10),
        ({"frequency": 3}, [1] * 10),
        ({"frequency": 10}, [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]),
        ({"frequency": 1, "start": 10}, [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]),
        (
            {"frequency": 1, "start": 9, "batches_per_event": 4},
            [0, 0, 4, 4, 4, 4, 4, 4, 4, 4],
        ),
        ({"frequency": 1, "update_to_data": 0.5}, [1, 2, 1, 2, 1, 2, 1, 2, 1, 2]),
        (
            {"frequency": 1, "start": 6, "update_to_data": 2.0},
            [0, 0, 6, 6, 6, 6, 6, 6, 6, 6],
        ),
    ],
)
def test_training_falls_due_as_the_spec_says(schedule, events):
    memory = replay(schedule=schedule)
    due = after_each_step(
        memory, 10, lambda: memory.take().num_batches if memory.ready() else 0
    )
    assert due == events


def after_each_step(memory, num_steps, look):
    """What `look` returns after each of so many steps."""
    seen = []
    fill(lambda step: (memory.add(step), seen.append(look())), 0, num_steps)
    return seen


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
    """From the first event on, however long the memory was filled before, and after a
    reload."""
    memory, twin = (replay(schedule={**schedule, "start": start}) for _ in range(2))
    events = after_each_step(
        memory, 80, lambda: (memory.num_batches, memory.num_trained_on)
    )
    drawn = np.cumsum([batches for batches, _ in events])
    due = [
        (drawn[i], ratio * trained) for i, (now, trained) in enumerate(events) if now
    ]
    assert len(due) > 5
    for batches, wanted in due:
        assert batches == (
            int(wanted) if "update_to_data" in schedule else pytest.approx(wanted)
        )
    twin.load_state_dict(memory.state_dict())
    assert twin.num_trained_on == memory.num_trained_on > 0


@pytest.mark.parametrize(("start", "steps"), [(0, 1), (1, 1), (3, 1), (10, 4)])
@BOTH
def test_training_without_a_ratio_waits_for_something_to_sample(model, start, steps):
    memory = replay(model, schedule={"frequency": 1, "start": start})
    memory.train_freely()
    assert not memory.ready()
    ready = after_each_step(memory, 5, memory.ready)
    assert ready == [False] * (steps - 1) + [True] * (6 - steps)
    assert memory.num_trained_on > 0


def sequences():
    """A memory of rows [observation, state, mark], from which sequences of 3 are
    drawn."""
    plan = ReplayConfig(
        schedule=TrainingSchedule(1, 0),
        gamma=GAMMA,
        num_steps=1,
        seed=0,
        recurrent=RecurrentLayout(1, 3),
    )
    layout = memory_layout((3,), num_envs=2, replay=plan)
    return build_memory(ReplaySpec(batch_size=120, max_size=200), layout)


def add_row(memory, number, starts=False):
    """One step of an endless episode of two environments, in the order of `number`."""
    obs = np.full((2, 1), number, np.float32)
    none = np.zeros(2, np.float32)
    no = np.zeros(2, np.bool_)
    row = pack_obs(obs, obs / 10, np.full(2, starts))
    following = pack_obs(obs + 1, (obs + 1) / 10, ~no)
    memory.add(
        VectorStep(
            obs=row,
            act=Act(np.zeros(2, np.int64), none, none, 0),
            reward=none,
            terminated=no,
            truncated=no,
            next_obs=following,
        )
    )
    return row, following


@pytest.mark.parametrize("reloads", [False, True])
def test_no_sequence_continues_over_a_break(reloads):
    """Rows 0 to 3 and 4 to 7 are unrolls of two actors, in the middle of their
    episodes."""
    memory = sequences()
    for number in range(4):
        _, end = add_row(memory, number, starts=number == 0)
    memory.break_off(end)
    if reloads:
        state = whole(memory)
        memory = sequences()
        load_whole(memory, state)
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
