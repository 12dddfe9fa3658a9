"""Unrolls against the memory that a learner would have filled with the same steps
itself."""

import copy
from dataclasses import fields, replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_array_equal, assert_equal
from torch.testing import assert_close

from slm_lab.agent.batch import Act, Rollout, VectorStep
from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.agent.memory.on_policy import OnPolicyBatchReplay
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.parallel.actor_learner.unroll import (
    Unroll,
    UnrollLayout,
    UnrollMemory,
    UnrollWriter,
    as_rollout,
)

STATISTICS = 5
HORIZONS = st.sampled_from([1, 2, 7])
SEEDS = st.integers(0, 10_000)
STEPS = tuple(
    f.name
    for f in fields(Rollout)
    if f.name not in ("bootstrap_obs", "bootstrap_t", "bootstrap_n")
)


def layout(horizon=7, num_envs=3, obs=((2,), np.float32), action=((), np.int64)):
    """Of unrolls with such observations and actions, each a shape and a dtype."""
    (obs_shape, obs_dtype) = obs
    (action_shape, action_dtype) = action
    steps = MemoryLayout(
        horizon=horizon,
        num_envs=num_envs,
        obs_shape=obs_shape,
        obs_dtype=np.dtype(obs_dtype),
        action_shape=action_shape,
        action_dtype=np.dtype(action_dtype),
    )
    return UnrollLayout(steps, STATISTICS)


LAYOUTS = (
    layout(),
    layout(obs=((4, 6, 5), np.uint8)),
    layout(horizon=3, num_envs=1, obs=((1,), np.float64), action=((3,), np.float32)),
)


def random_steps(of, rng):
    """What `Memory.add` is given T times; each way to end, and none, about as often."""
    steps = of.steps
    obs = (steps.num_envs, *steps.obs_shape)
    action = (steps.num_envs, *steps.action_shape)
    now = numbers(rng, obs, steps.obs_dtype)
    made = []
    for t in range(steps.horizon):
        terminated, truncated = rng.random((2, steps.num_envs)) < 0.5
        next_obs = numbers(rng, obs, steps.obs_dtype)
        act = Act(
            numbers(rng, action, steps.action_dtype),
            numbers(rng, steps.num_envs, np.float32),
            numbers(rng, steps.num_envs, np.float32),
            100 + t // 2,
        )
        reward = numbers(rng, steps.num_envs, np.float32)
        made.append(
            VectorStep(
                obs=now,
                act=act,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_obs=next_obs,
            )
        )
        now = next_obs.copy()
        ended = terminated | truncated
        now[ended] = numbers(rng, obs, steps.obs_dtype)[ended]  # a new episode
    return made


def numbers(rng, shape, dtype):
    return (100 * rng.random(shape)).astype(dtype)


def filled(of, steps):
    """An unroll into which they were written; what is in it besides is what was there
    before."""
    unroll = Unroll.within(np.full(of.record.itemsize, 77, np.uint8), of)
    writer = UnrollWriter(of.steps)
    writer.begin(unroll, np.zeros(STATISTICS), begins=True)
    for t, step in enumerate(steps):
        assert not writer.ready()
        reused = copy.deepcopy(step)
        writer.add(reused)
        one = np.array([0]), np.array([float(t)]), np.array([t + 1]), np.empty((1, 0))
        writer.note(FinishedEpisodes(*one))
        for array in (
            reused.obs,
            reused.reward,
            reused.terminated,
            reused.truncated,
            reused.next_obs,
        ):
            array[:] = 1  # the environment uses it again
    writer.end(np.ones(STATISTICS), 0.25, 5.0)
    assert writer.ready()
    assert writer.take() is unroll
    return unroll


def remembered(of, steps):
    """The rollout that an agent collects itself."""
    memory = OnPolicyBatchReplay(of.steps)
    for step in steps:
        memory.add(step)
    return memory.take()


def side_by_side(groups):
    """The same steps as if all environments were stepped together."""
    moments = zip(*groups, strict=True)
    return [VectorStep(*map(together, zip(*moment, strict=True))) for moment in moments]


def together(parts):
    if parts[0] is None:
        return None
    if not isinstance(parts[0], Act):
        return np.concatenate(parts)
    merged = {
        n: together([getattr(p, n) for p in parts])
        for n in ("action", "log_prob", "value")
    }
    return Act(**merged, version=parts[0].version)


def bootstraps(rollout):
    """State by place."""
    places = zip(
        rollout.bootstrap_t.tolist(), rollout.bootstrap_n.tolist(), strict=True
    )
    found = dict(zip(places, rollout.bootstrap_obs, strict=True))
    assert len(found) == len(rollout.bootstrap_obs)
    return found


def assert_same(one, other):
    """Field by field, to the last bit; bootstrap entries in any order."""
    for name in STEPS:
        assert_close(getattr(one, name), getattr(other, name), rtol=0, atol=0)
    found = bootstraps(one)
    wanted = bootstraps(other)
    assert found.keys() == wanted.keys()
    for place, obs in wanted.items():
        assert_close(found[place], obs, rtol=0, atol=0)


@given(seed=SEEDS, horizon=HORIZONS, which=st.sampled_from(LAYOUTS))
@settings(max_examples=60)
def test_an_unroll_is_the_rollout_that_the_same_steps_make_in_the_memory_of_an_agent(
    seed, horizon, which
):
    of = replace(which, steps=replace(which.steps, horizon=horizon))
    steps = random_steps(of, np.random.default_rng(seed))
    assert_same(as_rollout([filled(of, steps)]), remembered(of, steps))


@given(seed=SEEDS, horizon=HORIZONS, count=st.integers(2, 4))
@settings(max_examples=40)
def test_unrolls_side_by_side_are_the_rollout_of_all_environments(seed, horizon, count):
    rng = np.random.default_rng(seed)
    of = layout(horizon)
    groups = [random_steps(of, rng) for _ in range(count)]
    everywhere = layout(horizon, num_envs=count * of.steps.num_envs)
    wanted = remembered(everywhere, side_by_side(groups))
    assert_same(as_rollout([filled(of, steps) for steps in groups]), wanted)


@given(seed=SEEDS, horizon=HORIZONS, which=st.sampled_from(LAYOUTS))
@settings(max_examples=60)
def test_an_unroll_gives_back_the_very_steps_with_what_ended_ones_ended_in(
    seed, horizon, which
):
    of = replace(which, steps=replace(which.steps, horizon=horizon))
    steps = random_steps(of, np.random.default_rng(seed))
    unroll = filled(of, steps)
    for t, step in enumerate(steps):
        back = unroll.step(t)
        for one, other in zip(
            (back.obs, *back[2:6]), (step.obs, *step[2:6]), strict=True
        ):
            assert one.dtype == other.dtype
            assert_array_equal(one, other)
        assert_equal(back.act, step.act)


def test_an_unroll_says_how_it_was_played():
    of = layout()
    unroll = filled(of, random_steps(of, np.random.default_rng(0)))
    assert (unroll.begins, unroll.explore_var, unroll.handed_at) == (True, 0.25, 5.0)
    assert unroll.statistics.tolist() == [[0.0] * STATISTICS, [1.0] * STATISTICS]
    assert unroll.episode_length.tolist() == [[t + 1, 0, 0] for t in range(7)]
    assert unroll.episode_return[:, 0].tolist() == [float(t) for t in range(7)]


def test_episodes_of_the_unroll_that_was_there_before_are_forgotten():
    of = layout()
    unroll = Unroll.allocate(of)
    writer = UnrollWriter(of.steps)
    for note in (True, False):
        writer.begin(unroll, np.zeros(STATISTICS), begins=note)
        for step in random_steps(of, np.random.default_rng(0)):
            writer.add(step)
            if note:
                ended = np.arange(3), np.ones(3), np.ones(3, np.int64), np.empty((3, 0))
                writer.note(FinishedEpisodes(*ended))
        writer.end(np.zeros(STATISTICS), None, 1.0)
    assert not unroll.episode_length.any()
    assert (unroll.begins, unroll.explore_var) == (False, None)


def test_arrays_of_nothing_have_places_too():
    of = replace(layout(), num_statistics=0)
    assert Unroll.allocate(of).statistics.shape == (2, 0)


def test_a_single_unroll_is_learned_from_where_it_lies():
    of = layout()
    content = np.zeros(of.record.itemsize, np.uint8)
    rollout = as_rollout([Unroll.within(content, of)])
    for name in STEPS:
        assert np.shares_memory(getattr(rollout, name).numpy(), content), name


def memory_with(of, count, wanted):
    memory = UnrollMemory(wanted)
    rng = np.random.default_rng(3)
    unrolls = [filled(of, random_steps(of, rng)) for _ in range(count)]
    for unroll in unrolls:
        memory.put(unroll)
    return memory, unrolls


def test_a_rollout_is_made_of_as_many_unrolls_as_are_wanted_and_each_is_used_once():
    of = layout()
    memory, unrolls = memory_with(of, 1, wanted=2)
    assert not memory.ready()
    memory.put(unrolls[0])
    assert memory.ready()
    assert_same(memory.take(), as_rollout(unrolls * 2))
    assert not memory.ready()


def test_unrolls_that_wait_are_saved_as_they_were():
    of = layout()
    memory, unrolls = memory_with(of, 2, wanted=2)
    wanted = as_rollout(unrolls)
    state = memory.state_dict()
    for unroll in unrolls:
        unroll.obs[:] = 0  # the actor continues
        unroll.reward[:] = 0
    twin = UnrollMemory(2)
    twin.load_state_dict(state)
    assert twin.ready()
    assert_same(twin.take(), wanted)


def test_waiting_unrolls_are_dropped_where_they_cannot_be_continued():
    memory, _ = memory_with(layout(), 1, wanted=1)
    memory.break_off(np.zeros((3, 2), np.float32))
    assert not memory.ready()


def test_a_learner_with_actors_takes_no_single_steps():
    of = layout()
    with pytest.raises(TypeError, match="whole unrolls"):
        UnrollMemory(1).add(random_steps(of, np.random.default_rng(0))[0])
