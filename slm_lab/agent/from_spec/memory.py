"""The keys of a memory block become the arguments of a memory."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

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

Reader: TypeAlias = Callable[..., Memory[Any]]
"""Makes a memory from its keys, a layout, and its class."""

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
    if kind is Replay or issubclass(kind, OnPolicyReplay):
        for model in type(spec).__mro__:
            if model in READERS:
                return READERS[model](spec, layout, kind)
    memory: Memory[Any] = kind.build(spec, layout)
    return memory


def _best_episodes(
    spec: OnPolicyCrossEntropySpec, layout: MemoryLayout, kind: type[OnPolicyReplay]
) -> OnPolicyReplay:
    return kind(layout, spec.cross_entropy)


def _prioritized_replay(
    spec: PrioritizedReplaySpec, layout: MemoryLayout, kind: type[Replay]
) -> Replay:
    beta = None
    if spec.beta is not None:
        beta = spec.beta.build()
    priority = Priority(schedule_of(spec, "alpha"), spec.epsilon, beta)
    return _replay(spec, layout, kind, priority)


def _replay(
    spec: ReplaySpec,
    layout: MemoryLayout,
    kind: type[Replay],
    priority: Priority | None = None,
) -> Replay:
    return kind(
        layout,
        max_size=spec.max_size,
        batch_size=spec.batch_size,
        use_cer=spec.use_cer,
        storage=spec.storage,
        priority=priority,
    )


READERS: Mapping[type[MemorySpec], Reader] = {
    OnPolicyCrossEntropySpec: _best_episodes,
    PrioritizedReplaySpec: _prioritized_replay,
    ReplaySpec: _replay,
}
"""The functions that read the keys of the lab's memories; the others have none."""


def _past_episodes(spec: OnPolicySpec, layout: MemoryLayout) -> PastEpisodes:
    assert spec.batch_size is not None
    assert spec.max_size is not None
    assert layout.replay is not None
    ring = ReturnRing(spec.max_size, layout.replay.gamma, layout)
    sampler: Sampler = UniformSampler(ring, layout.replay.seed)
    if spec.sil_replay_name == "PrioritizedReplay":
        sampler = PrioritizedSampler(ring, layout.replay.seed, IMITATION)
    return PastEpisodes(ring, sampler, spec.batch_size, spec.use_cer)
