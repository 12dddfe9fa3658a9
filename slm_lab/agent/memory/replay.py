"""Memories that are drawn from again and again."""

from typing import final

import torch
from torch import Tensor

from slm_lab.agent.batch import Act, Transitions, TransitionSource
from slm_lab.agent.memory.drawing import NOTHING, Drawing, Proportional, Sequences, Uniform
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.agent.memory.step_log import StepLog
from slm_lab.agent.memory.storage import Allocate, in_memory, mapped_in
from slm_lab.agent.memory.transition_ring import TransitionRing
from slm_lab.agent.recall import begin_sequences, marked
from slm_lab.agent.replay_plan import ReplayPlan
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

    def __init__(self, spec: ReplaySpec, plan: ReplayPlan, layout: MemoryLayout) -> None:
        num_rows = spec.max_size // layout.num_envs
        allocate = _allocate(spec, layout)
        self._ring = TransitionRing(layout, num_rows, plan.gamma, plan.num_steps, allocate)
        self._drawing = _drawing(spec, self._ring, plan)
        self._recall = plan.recall
        self._schedule = plan.schedule
        self._before_training = plan.schedule.before_training(layout.num_envs)
        sequence = 1 if plan.recall is None else plan.recall.stretch * layout.num_envs
        self._least = max(plan.schedule.start, sequence)
        """Transitions stored before the first batch can be drawn."""
        self._batch_size = spec.batch_size
        self._use_cer = spec.use_cer
        self.num_batches = 0
        self._is_due = self._is_free = False
        self.num_stored = 0
        self.num_trained_on = 0

    @classmethod
    def build(cls, spec: MemorySpec, layout: MemoryLayout) -> "Replay":
        """Uniform for Replay, by priority for PrioritizedReplay."""
        assert isinstance(spec, ReplaySpec)
        assert layout.replay is not None, "an algorithm that replays says how"
        return cls(spec, layout.replay, layout)

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
        if self._recall is not None:
            obs = marked(obs, self._ring.begins)
        self._ring.add(obs, act, reward, terminated, truncated, next_obs)
        self._drawing.added()
        before, self.num_stored = self.num_stored, self.num_stored + len(reward)
        self.num_batches = self._schedule.due(before, self.num_stored)
        self._is_due = self.num_batches > 0
        self.num_trained_on = max(self.num_stored - self._before_training, 0)

    def train_freely(self) -> None:
        """A training event is due at any time, once `training_start_step` transitions are stored.

        At least one transition is waited for, or one sequence where sequences are drawn.
        """
        self._is_free = True

    def ready(self) -> bool:
        """Whether the newest step has made a training event due."""
        return self.num_stored >= self._least if self._is_free else self._is_due

    def take(self) -> TransitionSource:
        """The memory itself, to draw from."""
        self._is_due = False
        if self._is_free:
            self.num_batches = 1
        return self

    def sample(self, frame: int) -> Transitions:
        """See `TransitionSource`."""
        newest = self._ring.newest if self._use_cer else NOTHING
        places, weight = self._drawing.draw(self._batch_size, frame, newest)
        gathered = self._ring.gather(places)
        if self._recall is not None:
            begin_sequences(gathered.obs, gathered.next_obs, self._recall.stretch)
        return Transitions(
            **{name: torch.from_numpy(array) for name, array in gathered._asdict().items()},
            weight=weight,
            index=torch.from_numpy(places),
        )

    def report_errors(self, index: Tensor, error: Tensor) -> None:
        """See `TransitionSource`."""
        self._drawing.report_errors(index, error)

    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        """Ends the running episodes as truncated."""
        self._ring.break_off(next_obs if raw_next_obs is None else raw_next_obs)

    @property
    def log(self) -> StepLog:
        """The steps."""
        return self._ring

    def state_dict(self) -> StateDict:
        """Everything: steps, generator, priorities."""
        steps = self._ring.content(self._ring.first, self._ring.count)
        return {**self.state_without_log(), "steps": steps}

    def state_without_log(self) -> StateDict:
        """Generator and priorities."""
        return {
            "num_stored": self.num_stored,
            "num_batches": self.num_batches,
            "is_due": self._is_due,
            "ring": self._ring.state_dict(),
            "drawing": self._drawing.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores it, and the steps if they are there."""
        self.num_stored = int(state["num_stored"])
        self.num_batches = int(state["num_batches"])
        self._is_due = bool(state["is_due"])
        self.num_trained_on = max(self.num_stored - self._before_training, 0)
        self._ring.load_state_dict(state["ring"])
        self._drawing.load_state_dict(state["drawing"])
        if "steps" in state:
            self._ring.load_content(state["steps"])


def _allocate(spec: ReplaySpec, layout: MemoryLayout) -> Allocate:
    if spec.storage == "memory":
        return in_memory
    if layout.scratch is None:
        message = "needs a folder to keep its file in, which only a run has"
        raise LabError(f'agent.memory.storage = "memmap": {message}; use "memory"')
    return mapped_in(layout.scratch)


def _drawing(spec: ReplaySpec, ring: TransitionRing, plan: ReplayPlan) -> Drawing:
    if plan.recall is not None:
        return Sequences(ring, plan.seed, plan.recall)
    if isinstance(spec, PrioritizedReplaySpec):
        beta = None if spec.beta is None else Schedule(spec.beta)
        return Proportional(ring, plan.seed, spec.alpha, spec.epsilon, beta)
    return Uniform(ring, plan.seed)
