"""What every memory does, on the same stream of steps."""

import copy
import functools
from dataclasses import asdict

import numpy as np
import pytest
import torch

from slm_lab.agent.batch import Act, Rollout, TransitionSource, VectorStep
from slm_lab.agent.from_spec.memory import build_memory
from slm_lab.core.registry import MEMORIES
from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from tests.contract.parts_table import MEMORY_ROWS
from tests.contract.playing import load_whole, same, saved
from tests.contract.playing import whole as whole_of
from tests.contract.table import cases

ALL = pytest.mark.parametrize("case", cases(MEMORY_ROWS))
N, STEPS = 3, 40


def build(case, seed=0):
    """A memory as an algorithm builds it."""
    name, variant = case
    row = MEMORY_ROWS[name][variant]
    spec = MEMORIES.get(name).params.model_validate({"name": name, **row.block})
    return build_memory(spec, row.layout(seed))


def stream():
    """Steps of three environments; an observation is (step, environment) and so is its
    action."""
    rng = np.random.default_rng(0)
    for t in range(STEPS):
        obs = np.stack([np.full(N, t), np.arange(N)], 1).astype(np.float32)
        terminated = rng.random(N) < 0.15
        truncated = ~terminated & (rng.random(N) < 0.15)
        next_obs = obs + np.array([1, 0])
        # where an episode ends in is not where one begins
        next_obs[terminated | truncated] += 0.5
        numbers = rng.normal(size=(3, N)).astype(np.float32)
        act = Act(t * N + np.arange(N), numbers[0], numbers[1], t // 10)
        next_obs = next_obs.astype(np.float32)
        yield VectorStep(obs, act, numbers[2], terminated, truncated, next_obs)


@functools.singledispatch
def content(batch, frame):
    """The stored steps, as a state."""
    raise NotImplementedError(type(batch))


@content.register
def _(batch: Rollout, frame):
    return [{name: tensor.clone() for name, tensor in vars(batch).items()}]


@content.register
def _(batch: TransitionSource, frame):
    samples = []
    for number in range(batch.num_batches):
        sample = batch.sample(frame)
        error = sample.reward - sample.obs[:, 0] / STEPS * (number + 1)
        batch.update_priorities(sample.index, error)
        samples.append(asdict(sample))
    return samples


def batches(memory, steps, first=0):
    """The batches that a memory yields after each of these steps."""
    found = {}
    for t, step in enumerate(steps, first):
        memory.add(step)
        if memory.ready():
            found[t] = content(memory.take(), t * N)
    return found


@ALL
def test_a_memory_is_first_empty_and_then_yields_batches_repeatedly(case):
    memory = build(case)
    assert not memory.ready()
    assert len(batches(memory, stream())) > 1


@ALL
def test_an_on_policy_batch_is_returned_only_once(case):
    memory = build(case)
    name, variant = case
    several = MEMORY_ROWS[name][variant].horizon > 1
    for step in stream():
        memory.add(step)
        if memory.ready():
            content(memory.take(), 0)
            assert not (several and memory.ready())


@ALL
def test_an_observation_keeps_its_action(case):
    """In any order of the returned steps."""
    for found in batches(build(case), stream()).values():
        for batch in found:
            t, n = batch["obs"][..., 0], batch["obs"][..., 1]
            torch.testing.assert_close(t * N + n, batch["action"].float())


@ALL
def test_the_caller_may_reuse_its_arrays(case):
    expected = batches(build(case), map(copy.deepcopy, stream()))

    def overwritten():
        for step in map(copy.deepcopy, stream()):
            yield step
            for array in (step.obs, *step.act[:3], *step[2:6]):
                array[...] = 1 if array.dtype == np.bool_ else -7

    assert same(batches(build(case), overwritten()), expected)


@ALL
@pytest.mark.parametrize("when", [0, 3, 19, 33])
def test_a_memory_that_was_saved_and_loaded_continues_as_before(case, when):
    """Loaded into a memory that has held something else, under another seed."""
    whole = batches(build(case), stream())
    steps = list(stream())
    first = build(case)
    found = batches(first, steps[:when])
    twin = build(case, seed=5)
    load_whole(twin, saved(whole_of(first)))
    assert same(whole_of(twin), whole_of(first))
    found |= batches(twin, steps[when:], first=when)
    assert same(found, whole)


@ALL
def test_a_saved_state_does_not_change(case):
    """A checkpoint may be written while the memory is in use."""
    memory, steps = build(case), list(stream())
    batches(memory, steps[:23])
    state = whole_of(memory)
    then = saved(state)
    batches(memory, steps[23:])
    assert same(state, then)


@ALL
@pytest.mark.parametrize("when", [1, 2, 7, 24, 26])
def test_breaking_off_truncates_the_last_step(case, when):
    """The last observations may also be reused."""
    steps = list(stream())
    nowhere, everywhere = np.zeros(N, bool), np.ones(N, bool)
    running = steps[when - 1]._replace(terminated=nowhere, truncated=nowhere)
    truncated = running._replace(truncated=everywhere)

    memory, expected = build(case), build(case)
    batches(memory, steps[: when - 1])
    batches(expected, steps[: when - 1])
    memory.add(running)
    last_obs = running.next_obs.copy()
    memory.break_off(last_obs)
    last_obs[...] = -7
    expected.add(truncated)
    assert memory.ready() == expected.ready()
    if memory.ready():
        assert same(content(memory.take(), when), content(expected.take(), when))
    found = batches(memory, steps[when:], first=when)
    assert found
    assert same(found, batches(expected, steps[when:], first=when))


@ALL
def test_breaking_off_without_running_episodes_changes_nothing(case):
    memory = build(case)
    memory.break_off(np.zeros((N, 2), np.float32))
    assert same(batches(memory, stream()), batches(build(case), stream()))
