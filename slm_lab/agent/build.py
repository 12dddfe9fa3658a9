"""Builds an agent from a spec and the spaces of an environment."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.algorithm import AgentParts, AgentSeeds, BuildContext
from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.agent.algorithm.resets import Resets
from slm_lab.agent.fast.choose import choose
from slm_lab.agent.from_spec.memory import build_memory
from slm_lab.agent.from_spec.schedule import ScheduledNumbers
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.agent.optim.optimizer import TrainState
from slm_lab.core.observation import ObservationLayout
from slm_lab.core.registry import ALGORITHMS
from slm_lab.core.types import Normalization
from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from slm_lab.spec.schema.agent import AgentSpec


def build_agent(
    spec: AgentSpec,
    layout: ObservationLayout,
    action_space: gymnasium.Space[Any],
    num_envs: int,
    seeds: AgentSeeds,
    scratch: Path | None = None,
    correction: VTrace | None = None,
    normalization: Normalization | None = None,
    make_memory: Callable[[MemoryLayout], Memory[Any]] | None = None,
    steps_on_device: bool = False,
    may_be_absent: bool = False,
) -> LearningAgent:
    """The agent that `spec` describes, for environments that each have observations of
    this layout and these actions.

    `scratch` is a folder for temporary files. `correction` is for rollouts of a policy
    older than the learner's. `normalization` is what the environments do to values, for
    memories that store them raw. `make_memory` replaces the memory that the spec asks
    for. With `steps_on_device` the environment's steps are tensors on the networks'
    device, see `AlgorithmSpec.KEEPS_STEPS_ON_DEVICE`. For `may_be_absent` see
    `MemoryLayout`.

    Raises LabError when a part is unknown, not built yet, or does not fit the
    spaces."""
    context = BuildContext(
        spec=spec,
        layout=layout,
        action_space=action_space,
        num_envs=num_envs,
        seeds=seeds,
        correction=correction,
        steps_on_device=steps_on_device,
    )
    parts: AgentParts = ALGORITHMS.load(spec.algorithm.name).build(context)
    parts.learner.resets = _resets(context)
    numbers = None
    if spec.algorithm.schedules:
        numbers = ScheduledNumbers(spec.algorithm)
    can_be_recorded = spec.algorithm.RECORDS_STEPS and not spec.has_schedules
    choose(parts, records=can_be_recorded)
    stored = layout
    if parts.recurrent is not None:
        stored = parts.recurrent.packed(layout)
    devices = (flat.vector.device for flat in parts.learner.flats.values())
    memory_layout = MemoryLayout(
        horizon=parts.horizon,
        num_envs=num_envs,
        obs_shape=stored.shape,
        obs_dtype=stored.dtype,
        action_shape=parts.action_shape,
        action_dtype=parts.action_dtype,
        replay=parts.replay,
        frame_stack=stored.frames,
        scratch=scratch,
        normalization=normalization,
        device=next(devices, None),
        steps_on_device=steps_on_device,
        is_packed=parts.recurrent is not None,
        may_be_absent=may_be_absent,
    )
    memory: Memory[Any] | None = None
    if make_memory is not None:
        memory = make_memory(memory_layout)
    elif spec.memory is not None:
        memory = build_memory(spec.memory, memory_layout)
    return LearningAgent(parts.actor, parts.learner, memory, numbers)


def _resets(context: BuildContext) -> Resets | None:
    """Resets as the spec asks for them, each with weights of its own; None without."""
    algorithm = context.spec.algorithm
    frequency = algorithm.frames_between_resets
    if frequency is None:
        return None

    def build(seed: int) -> TrainState:
        seeds = replace(context.seeds, init=seed)
        fresh: AgentParts = ALGORITHMS.load(algorithm.name).build(
            replace(context, seeds=seeds)
        )
        return fresh.learner.train_state

    return Resets(frequency, context.seeds.init, build)
