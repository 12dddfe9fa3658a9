"""Memories that are drawn from again and again."""

from typing import final

import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.batch import Act, Transitions, TransitionSource
from slm_lab.agent.memory.memory import AppendLog, Memory, MemoryLayout
from slm_lab.agent.memory.sampler import (
    NOTHING,
    PrioritizedSampler,
    Sampler,
    SequenceSampler,
    UniformSampler,
)
from slm_lab.agent.memory.storage import Allocate, in_memory, mapped_in
from slm_lab.agent.memory.transition_ring import TransitionRing
from slm_lab.agent.recurrent_state import begin_sequences, marked
from slm_lab.agent.replay_config import ReplayConfig
from slm_lab.agent.schedule import Schedule
from slm_lab.core.errors import LabError
from slm_lab.core.normalization import Unnormalized
from slm_lab.core.types import Array, BoolArray, FloatArray, StateDict
from slm_lab.spec.schema.memory import MemorySpec, PrioritizedReplaySpec, ReplaySpec


@final
class Replay(Memory[TransitionSource], TransitionSource):
    """Experience replay (Lin, 1992): a ring of transitions, drawn uniformly or by priority.

    Observations and rewards are stored raw, and normalised by the statistics of now when they are
    sampled, so that a state is one input, whenever it was seen.

    With `use_cer` the newest transition of every environment is part of every batch: combined
    experience replay, arXiv:1712.01275.
    """

    def __init__(self, spec: ReplaySpec, plan: ReplayConfig, layout: MemoryLayout) -> None:
        num_rows = spec.max_size // layout.num_envs
        allocate = _allocate(spec, layout)
        self._ring = TransitionRing(layout, num_rows, plan.gamma, plan.num_steps, allocate)
        self._sampler = _sampler(spec, self._ring, plan)
        self._recurrent = plan.recurrent
        self._schedule = plan.schedule
        self._before_training = plan.schedule.before_training(layout.num_envs)
        sequence = 1 if plan.recurrent is None else plan.recurrent.stretch * layout.num_envs
        self._least = max(plan.schedule.start, sequence)
        """Transitions stored before the first batch can be drawn."""
        self._batch_size = spec.batch_size
        self._use_cer = spec.use_cer
        self.num_batches = 0
        self._is_due = self._is_free = False
        self.num_stored = 0
        self.num_trained_on = 0

    @classmethod
    @override
    def build(cls, spec: MemorySpec, layout: MemoryLayout) -> "Replay":
        """Uniform for Replay, by priority for PrioritizedReplay."""
        assert isinstance(spec, ReplaySpec)
        assert layout.replay is not None, "an algorithm that replays says how"
        return cls(spec, layout.replay, layout)

    @override
    def add(
        self,
        obs: Array,
        act: Act,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        next_obs: Array,
        raw: Unnormalized | None = None,
    ) -> None:
        """Writes one step over the oldest, as it was before it was normalised."""
        if raw is not None:
            obs, reward, next_obs = raw
        if self._recurrent is not None:
            obs = marked(obs, self._ring.begins)
        self._ring.add(obs, act, reward, terminated, truncated, next_obs)
        self._sampler.added()
        before, self.num_stored = self.num_stored, self.num_stored + len(reward)
        self.num_batches = self._schedule.due(before, self.num_stored)
        self._is_due = self.num_batches > 0
        self.num_trained_on = max(self.num_stored - self._before_training, 0)

    def train_freely(self) -> None:
        """A training event is due at any time, once `training_start_step` transitions are stored.

        At least one transition is waited for, or one sequence where sequences are drawn.
        """
        self._is_free = True

    @override
    def ready(self) -> bool:
        """Whether the newest step has made a training event due."""
        return self.num_stored >= self._least if self._is_free else self._is_due

    @override
    def take(self) -> TransitionSource:
        """The memory itself, to draw from."""
        self._is_due = False
        if self._is_free:
            self.num_batches = 1
        return self

    @override
    def sample(self, frame: int) -> Transitions:
        newest = self._ring.newest if self._use_cer else NOTHING
        places, weight = self._sampler.sample(self._batch_size, frame, newest)
        gathered = self._ring.gather(places)
        if self._recurrent is not None:
            begin_sequences(gathered.obs, gathered.next_obs, self._recurrent.stretch)
        return Transitions(
            **{name: torch.from_numpy(array) for name, array in gathered._asdict().items()},
            weight=weight,
            index=torch.from_numpy(places),
        )

    @override
    def update_priorities(self, index: Tensor, error: Tensor) -> None:
        self._sampler.update_priorities(index, error)

    @override
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        """Ends the running episodes as truncated."""
        self._ring.break_off(next_obs if raw_next_obs is None else raw_next_obs)

    @property
    @override
    def log(self) -> AppendLog:
        """The steps."""
        return self._ring

    @override
    def state_dict(self) -> StateDict:
        """Everything: steps, generator, priorities."""
        steps = self._ring.content(self._ring.first, self._ring.count)
        return {**self.state_without_log(), "steps": steps}

    @override
    def state_without_log(self) -> StateDict:
        """Generator and priorities."""
        return {
            "num_stored": self.num_stored,
            "num_batches": self.num_batches,
            "is_due": self._is_due,
            "ring": self._ring.state_dict(),
            "drawing": self._sampler.state_dict(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores it, and the steps if they are there."""
        self.num_stored = int(state["num_stored"])
        self.num_batches = int(state["num_batches"])
        self._is_due = bool(state["is_due"])
        self.num_trained_on = max(self.num_stored - self._before_training, 0)
        self._ring.load_state_dict(state["ring"])
        self._sampler.load_state_dict(state["drawing"])
        if "steps" in state:
            self._ring.load_content(state["steps"])


def _allocate(spec: ReplaySpec, layout: MemoryLayout) -> Allocate:
    if spec.storage == "memory":
        return in_memory
    if layout.scratch is None:
        message = "needs a folder to keep its file in, which only a run has"
        raise LabError(f'agent.memory.storage = "memmap": {message}; use "memory"')
    return mapped_in(layout.scratch)


def _sampler(spec: ReplaySpec, ring: TransitionRing, plan: ReplayConfig) -> Sampler:
    if plan.recurrent is not None:
        return SequenceSampler(ring, plan.seed, plan.recurrent)
    if isinstance(spec, PrioritizedReplaySpec):
        beta = None if spec.beta is None else Schedule(spec.beta)
        return PrioritizedSampler(ring, plan.seed, spec.alpha, spec.epsilon, beta)
    return UniformSampler(ring, plan.seed)
