"""The keys of a memory block become the arguments of a memory."""

from typing import Any

from slm_lab.agent.from_spec.schedule import schedule_of
from slm_lab.agent.memory.device_rollout import DeviceRollout
from slm_lab.agent.memory.episodes import OnPolicyReplay
from slm_lab.agent.memory.imitation import PastEpisodes, ReturnRing, SelfImitationMemory
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.agent.memory.on_policy import OnPolicyBatchReplay
from slm_lab.agent.memory.replay import Replay
from slm_lab.agent.memory.sampler import (
    PrioritizedSampler,
    Priority,
    Sampler,
    UniformSampler,
)
from slm_lab.core.registry import MEMORIES
from slm_lab.core.schedule import Schedule
from slm_lab.spec.schema.memory import (
    MemorySpec,
    OnPolicyCrossEntropySpec,
    OnPolicySpec,
    PrioritizedReplaySpec,
    ReplaySpec,
)

IMITATION = Priority(beta=Schedule(0.1))
"""The priority of self-imitation: constant weights, as in section 4.1 of
arXiv:1806.05635."""


def build_memory(spec: MemorySpec, layout: MemoryLayout) -> Memory[Any]:
    """The memory that the spec names, with room for such steps; beside past episodes if
    it asks for self-imitation."""
    memory = _registered(spec, layout)
    if isinstance(spec, OnPolicySpec) and spec.sil_replay_name is not None:
        return SelfImitationMemory(memory, _past_episodes(spec, layout))
    return memory


def _registered(spec: MemorySpec, layout: MemoryLayout) -> Memory[Any]:
    kind = MEMORIES.load(spec.name)
    if layout.steps_on_device:
        assert kind is OnPolicyBatchReplay
        return DeviceRollout(layout)
    if kind is Replay:
        assert isinstance(spec, ReplaySpec)
        return _replay(spec, layout)
    if isinstance(spec, OnPolicyCrossEntropySpec) and issubclass(kind, OnPolicyReplay):
        return kind(layout, spec.cross_entropy)
    memory: Memory[Any] = kind.build(spec, layout)
    return memory


def _replay(spec: ReplaySpec, layout: MemoryLayout) -> Replay:
    priority = None
    if isinstance(spec, PrioritizedReplaySpec):
        beta = None
        if spec.beta is not None:
            beta = spec.beta.build()
        priority = Priority(schedule_of(spec, "alpha"), spec.epsilon, beta)
    return Replay(
        layout,
        max_size=spec.max_size,
        batch_size=spec.batch_size,
        use_cer=spec.use_cer,
        storage=spec.storage,
        priority=priority,
    )


def _past_episodes(spec: OnPolicySpec, layout: MemoryLayout) -> PastEpisodes:
    assert spec.batch_size is not None
    assert spec.max_size is not None
    assert layout.replay is not None
    ring = ReturnRing(spec.max_size, layout.replay.gamma, layout)
    sampler: Sampler = UniformSampler(ring, layout.replay.seed)
    if spec.sil_replay_name == "PrioritizedReplay":
        sampler = PrioritizedSampler(ring, layout.replay.seed, IMITATION)
    return PastEpisodes(ring, sampler, spec.batch_size, spec.use_cer)
