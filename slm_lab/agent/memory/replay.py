"""Memories that are sampled from repeatedly."""

from typing import ClassVar, Literal, final

import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.batch import Transitions, TransitionSource, VectorStep
from slm_lab.agent.memory import sampler
from slm_lab.agent.memory.memory import Memory, MemoryLayout, ReplayConfig
from slm_lab.agent.memory.observation_ring import (
    Allocate,
    allocate_in_memory,
    mapped_in,
)
from slm_lab.agent.memory.transition_ring import TransitionRing
from slm_lab.agent.recurrent_state import mark_sequence_starts, mark_starts
from slm_lab.core.errors import LabError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array


@final
class Replay(SavedFields, Memory[TransitionSource], TransitionSource):
    """Experience replay (Lin, 1992): a ring of transitions, sampled uniformly or by
    priority.

    Observations and rewards are stored raw, and normalised by current statistics when
    they are sampled. So a state is one input, whenever it was stored.

    With `use_cer` the newest transition of every environment is part of every batch:
    combined experience replay, arXiv:1712.01275. Of recurrent networks it samples
    sequences, whatever the `priority`."""

    saved: ClassVar = {
        "num_stored": "num_stored",
        "num_batches": "num_batches",
        "is_due": "_is_due",
        "ring": "ring",
        "sampler": "_sampler",
    }

    def __init__(
        self,
        layout: MemoryLayout,
        max_size: int,
        batch_size: int,
        use_cer: bool = False,
        storage: Literal["memory", "memmap", "device"] = "memory",
        priority: sampler.Priority | None = None,
    ) -> None:
        config = layout.replay
        assert config is not None, "an algorithm that replays says how"
        _check_room(layout.num_envs, max_size, batch_size if use_cer else None)
        sequence = 1
        if config.recurrent is not None:
            sequence = config.recurrent.seq_len * layout.num_envs
            _check_sequence("agent.memory.max_size", max_size, sequence)
        self.ring = TransitionRing(
            layout,
            num_rows=max_size // layout.num_envs,
            gamma=config.gamma,
            num_steps=config.num_steps,
            allocate=_allocate(storage, layout),
            on_device=storage == "device",
        )
        self.log = self.ring
        self._sampler = _sampler(self.ring, config, priority)
        self._recurrent = config.recurrent
        self._gamma = config.gamma_schedule
        self._schedule = config.schedule
        self._before_training = config.schedule.before_training(layout.num_envs)
        self._least = max(config.schedule.start, sequence)
        """Transitions stored before the first batch can be sampled."""
        self._batch_size = batch_size
        self._use_cer = use_cer
        self.num_batches = 0
        self._is_due = False
        self._is_free = False
        self.num_stored = 0
        self.ranks_differ = layout.may_be_absent

    @override
    def add(self, step: VectorStep) -> None:
        step = step.unnormalized()
        if self._recurrent is not None:
            step = step._replace(obs=mark_starts(step.obs, self.ring.starts))
        self.ring.add(step)
        self._sampler.added()
        before = self.num_stored
        self.num_stored += step.num_present
        self.num_batches = self._schedule.due(before, self.num_stored)
        self._is_due = self.num_batches > 0

    @property
    @override
    def num_owed(self) -> int | None:
        return self._schedule.owed(self.num_stored)

    @property
    @override
    def num_trained_on(self) -> int:
        return max(self.num_stored - self._before_training, 0)

    def train_freely(self) -> None:
        """Makes a training event due at any time, once `training_start_step`
        transitions are stored. At least one transition must be stored, or one sequence
        where sequences are sampled."""
        self._is_free = True

    @override
    def ready(self) -> bool:
        if self._is_free:
            return self.num_stored >= self._least
        return self._is_due

    @override
    def take(self) -> TransitionSource:
        self._is_due = False
        if self._is_free:
            self.num_batches = 1
        elif self.num_stored < self._least:
            key = "agent.algorithm.training_start_step"
            _check_sequence(key, self._schedule.start, self._least)
        return self

    @override
    def sample(self, frame: int) -> Transitions:
        newest = self.ring.newest if self._use_cer else sampler.NOTHING
        if self._gamma is not None:
            self.ring.discount_by(self._gamma.at(frame))
        indices, weight = self._sampler.sample(self._batch_size, frame, newest)
        gathered = self.ring.gather(indices)
        if self._recurrent is not None:
            obs = gathered.obs
            next_obs = gathered.next_obs
            assert not isinstance(obs, Tensor)
            assert not isinstance(next_obs, Tensor)
            mark_sequence_starts(obs, next_obs, self._recurrent.seq_len)
        return Transitions(
            **{
                name: torch.as_tensor(array)
                for name, array in gathered._asdict().items()
            },
            weight=weight,
            index=torch.from_numpy(indices),
        )

    @override
    def update_priorities(self, index: Tensor, error: Tensor) -> None:
        self._sampler.update_priorities(index, error)

    @override
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        self.ring.break_off(next_obs if raw_next_obs is None else raw_next_obs)


def _check_room(num_envs: int, max_size: int, batch_size: int | None) -> None:
    """Raises LabError if the newest step of all rows does not fit in the ring, or fills
    a batch. A spec tells the number of copies, and not the number of their agents."""
    if max_size < num_envs:
        raise LabError(
            f"agent.memory.max_size = {max_size}: must be at least {num_envs}, the "
            "agents of all copies"
        )
    if batch_size is not None and batch_size <= num_envs:
        raise LabError(
            f"agent.memory.batch_size = {batch_size}: must be more than {num_envs} "
            "with use_cer, the newest steps of all agents"
        )


def _check_sequence(key: str, count: int, least: int) -> None:
    """Raises LabError if `count`, the transitions that the key `key` allows, is below
    `least`. `least` is one sequence of all rows. It must fit in the ring, and be stored
    before the first training event."""
    if count < least:
        raise LabError(
            f"{key} = {count}: must be at least {least}, one sequence of the agents "
            "of all copies"
        )


def _allocate(storage: str, layout: MemoryLayout) -> Allocate:
    if storage != "memmap":
        return allocate_in_memory
    if layout.scratch is None:
        message = "needs a folder to keep its file in, which only a run has"
        raise LabError(f'agent.memory.storage = "memmap": {message}; use "memory"')
    return mapped_in(layout.scratch)


def _sampler(
    ring: TransitionRing, config: ReplayConfig, priority: sampler.Priority | None
) -> sampler.Sampler:
    if config.recurrent is not None:
        return sampler.SequenceSampler(ring, config.seed, config.recurrent)
    if priority is not None:
        return sampler.PrioritizedSampler(ring, config.seed, priority)
    return sampler.UniformSampler(ring, config.seed)
