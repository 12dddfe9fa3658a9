"""The contract of a memory: what every memory does with the same stream of steps."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pytest
import torch

from slm_lab.agent.batch import Act, Rollout, TransitionSource, VectorStep
from slm_lab.agent.from_spec.memory import build_memory
from slm_lab.agent.memory.memory import (
    Memory,
    MemoryLayout,
    ReplayConfig,
    TrainingSchedule,
)
from slm_lab.core.registry import MEMORIES
from slm_lab.spec import builtin as _builtin  # registers the lab's parts  # noqa: F401
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.testing.contract import Contract
from slm_lab.testing.play import load_whole, same, saved, whole

Batches: TypeAlias = dict[int, list[dict[str, Any]]]
"""The stored steps of each batch, by the number of the step after which it was
ready."""

N = 3
STEPS = 40
OF_STEP = ("reward", "terminated", "truncated", "log_prob", "value")
"""The fields of a rollout with one number for each observation."""


@dataclass(frozen=True)
class MemoryCase:
    """A memory block, such as `{"name": "Replay", "batch_size": 8, "max_size": 60}`,
    and what an algorithm says to it. It must yield several batches of 40 steps of three
    environments. A small `max_size` has it write over its first steps."""

    block: dict[str, Any]
    """The keys of `agent.memory`, with its name."""
    horizon: int = 1
    """Steps of a rollout."""
    num_steps: int = 1
    """n of n-step returns, of memories that are drawn from."""

    def layout(self, seed: int) -> MemoryLayout:
        """A layout of three environments, with observations (2,) and one action
        each."""
        schedule = TrainingSchedule(frequency=12, start=24, batches_per_event=2)
        plan = ReplayConfig(schedule, 0.9, self.num_steps, seed)
        return MemoryLayout(
            self.horizon,
            N,
            obs_shape=(2,),
            obs_dtype=np.dtype(np.float32),
            action_shape=(),
            action_dtype=np.dtype(np.int64),
            replay=plan,
        )

    def build(self, seed: int = 0) -> Memory[Any]:
        """A memory as an algorithm builds it."""
        entry = MEMORIES.get(self.block["name"])
        MEMORIES.load(self.block["name"])  # raises if there is none
        model = MemorySpec
        if entry is not None and entry.params is not None:
            model = entry.params
        return build_memory(model.model_validate(self.block), self.layout(seed))


def stream() -> Iterator[VectorStep]:
    """Steps of three environments. An observation is (step, environment), and an action
    is the number of its observation."""
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
        yield VectorStep(
            obs=obs,
            act=act,
            reward=numbers[2],
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs.astype(np.float32),
        )


def overwritten() -> Iterator[VectorStep]:
    """The stream of a caller that uses its arrays for something else afterwards."""
    for step in map(copy.deepcopy, stream()):
        yield step
        for array in (*step, *step.act):
            if isinstance(array, np.ndarray):
                array[...] = 1 if array.dtype == np.bool_ else -7


class MemoryContract(Contract):
    """The tests that every memory passes. `cases` are `MemoryCase`s."""

    cases: ClassVar[dict[str, MemoryCase]]

    def content(self, batch: Any, frame: int) -> list[dict[str, Any]]:
        """The stored steps of a batch, field by field. Override it for a memory that
        hands out a batch of its own, which must have `obs` and `action`."""
        if isinstance(batch, Rollout):
            return [{name: tensor.clone() for name, tensor in vars(batch).items()}]
        assert isinstance(batch, TransitionSource), (
            f"take() returned a {type(batch).__name__}: return a Rollout or a "
            "TransitionSource, or override MemoryContract.content for your own batch"
        )
        samples = []
        for number in range(batch.num_batches):
            sample = batch.sample(frame)
            error = sample.reward - sample.obs[:, 0] / STEPS * (number + 1)
            batch.update_priorities(sample.index, error)
            samples.append(asdict(sample))
        return samples

    def batches(
        self, memory: Memory[Any], steps: Iterable[VectorStep], first: int = 0
    ) -> Batches:
        """The batches that a memory yields after each of these steps."""
        batches = {}
        for t, step in enumerate(steps, first):
            memory.add(step)
            if memory.ready():
                batches[t] = self.content(memory.take(), t * N)
        return batches

    def test_it_is_first_empty_and_then_yields_batches_repeatedly(
        self, case: MemoryCase
    ) -> None:
        memory = case.build()
        assert not memory.ready(), (
            "a new memory is ready() before its first step: return False until there "
            "is a batch"
        )
        count = len(self.batches(memory, stream()))
        assert count > 1, (
            f"the memory yielded {count} batches in {STEPS} steps: a batch must be "
            "ready() again and again; choose a smaller horizon if the case is too long"
        )

    def test_a_rollout_is_returned_only_once(self, case: MemoryCase) -> None:
        memory = case.build()
        for step in stream():
            memory.add(step)
            if memory.ready():
                self.content(memory.take(), 0)
                again = case.horizon > 1 and memory.ready()
                assert not again, (
                    "the memory is ready() again right after take(): take() must "
                    "leave no batch behind"
                )

    def test_what_was_added_comes_back(self, case: MemoryCase) -> None:
        """The steps may come in any order, with the shapes and types of the layout."""
        for batch in self.steps_of(self.batches(case.build(), stream())):
            obs = batch["obs"]
            assert obs.dtype == torch.float32, (
                f"observations come back as {obs.dtype}: keep the type of the layout, "
                "torch.float32"
            )
            assert obs.shape[-1:] == (2,), (
                f"observations come back with the shape {tuple(obs.shape)}: keep the "
                "shape of the layout, (…, 2)"
            )
            lead = obs.shape[:-1]
            for name in {"action", *OF_STEP} & batch.keys():
                assert batch[name].shape == lead, (
                    f"{name} comes back with the shape {tuple(batch[name].shape)}: "
                    f"keep one for each observation, {tuple(lead)}"
                )
            expected = obs[..., 0] * N + obs[..., 1]
            assert torch.equal(expected, batch["action"].float()), (
                "an observation came back with the action of another one: keep the "
                "fields of a step together, also after the memory has wrapped around"
            )

    def steps_of(self, batches: Batches) -> Iterator[dict[str, Any]]:
        """The stored steps of all batches."""
        for contents in batches.values():
            yield from contents

    def test_the_caller_may_reuse_its_arrays(self, case: MemoryCase) -> None:
        expected = self.batches(case.build(), stream())
        assert same(self.batches(case.build(), overwritten()), expected), (
            "a batch changed when the caller reused its arrays: add() must copy what "
            "it keeps"
        )

    @pytest.mark.parametrize("when", [0, 3, 19, 33])
    def test_saved_and_loaded_it_continues_as_before(
        self, case: MemoryCase, when: int
    ) -> None:
        """Loaded into a memory that was built under another seed."""
        expected = self.batches(case.build(), stream())
        steps = list(stream())
        memory = case.build()
        batches = self.batches(memory, steps[:when])
        twin = case.build(seed=5)
        load_whole(twin, saved(whole(memory)))
        assert same(whole(twin), whole(memory)), (
            f"after {when} steps the loaded memory has another state than the saved "
            "one: load_state_dict must restore all that state_dict returns"
        )
        batches |= self.batches(twin, steps[when:], first=when)
        assert same(batches, expected), (
            f"saved and loaded after {when} steps, the memory yields other batches: "
            "state_dict lacks something that later batches depend on"
        )

    def test_a_saved_state_does_not_change(self, case: MemoryCase) -> None:
        """A checkpoint may be written while the memory is in use."""
        memory = case.build()
        steps = list(stream())
        self.batches(memory, steps[:23])
        state = whole(memory)
        before = saved(state)
        self.batches(memory, steps[23:])
        assert same(state, before), (
            "a state changed after it was saved, because it shares arrays with the "
            "memory: state_dict must return copies"
        )

    @pytest.mark.parametrize("when", [1, 2, 7, 24, 26])
    def test_breaking_off_truncates_the_last_step(
        self, case: MemoryCase, when: int
    ) -> None:
        """The last observations may also be reused."""
        steps = list(stream())
        nowhere = np.zeros(N, bool)
        running = steps[when - 1]._replace(terminated=nowhere, truncated=nowhere)
        truncated = running._replace(truncated=np.ones(N, bool))
        memory = case.build()
        expected = case.build()
        self.batches(memory, steps[: when - 1])
        self.batches(expected, steps[: when - 1])
        memory.add(running)
        last_obs = running.next_obs.copy()
        memory.break_off(last_obs)
        last_obs[...] = -7
        expected.add(truncated)
        fix = (
            f"break_off() after {when} steps differs from a step that was truncated: "
            "it must mark the newest step of each running episode as truncated, with "
            "a copy of the last observations"
        )
        assert memory.ready() == expected.ready(), fix
        if memory.ready():
            broken = self.content(memory.take(), when)
            assert same(broken, self.content(expected.take(), when)), fix
        batches = self.batches(memory, steps[when:], first=when)
        assert batches, "after break_off() no batch is ready(): keep collecting steps"
        assert same(batches, self.batches(expected, steps[when:], first=when)), fix

    def test_breaking_off_without_running_episodes_changes_nothing(
        self, case: MemoryCase
    ) -> None:
        memory = case.build()
        memory.break_off(np.zeros((N, 2), np.float32))
        batches = self.batches(memory, stream())
        assert same(batches, self.batches(case.build(), stream())), (
            "break_off() of an empty memory changed later batches: it must do nothing "
            "where no episode runs"
        )
