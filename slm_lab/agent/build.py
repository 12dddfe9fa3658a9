"""Builds an agent from a spec and the spaces of an environment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from slm_lab.agent.agent import Agent
from slm_lab.agent.algorithm.algorithm import AgentParts, AgentSeeds, BuildContext
from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.agent.fast.choose import choose
from slm_lab.agent.memory.imitation import SelfImitationMemory
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.core.registry import ALGORITHMS, MEMORIES
from slm_lab.core.types import Normalization
from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.memory import OnPolicySpec


def build_agent(
    spec: AgentSpec,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    num_envs: int,
    seeds: AgentSeeds,
    scratch: Path | None = None,
    frame_stack: int = 1,
    correction: VTrace | None = None,
    normalization: Normalization | None = None,
    make_memory: Callable[[MemoryLayout], Memory[Any]] | None = None,
) -> Agent:
    """The agent that `spec` describes, for environments with these spaces of one
    environment.

    `frame_stack` is the number of frames in an observation; a memory stores each frame
    once. `scratch` is a folder for temporary files. `correction` is for rollouts of a
    policy older than the learner's. `normalization` is that of the environments, for
    memories that store raw values. `make_memory` replaces the memory that the spec asks
    for.

    Raises LabError when a part is unknown, not built yet, or does not fit the
    spaces."""
    context = BuildContext(
        spec, observation_space, action_space, num_envs, seeds, correction
    )
    parts: AgentParts = ALGORITHMS.load(spec.algorithm.name).build(context)
    choose(parts)
    obs_shape, recurrent = context.obs_shape, parts.recurrent
    layout = MemoryLayout(
        parts.horizon,
        num_envs,
        obs_shape if recurrent is None else (obs_shape[0] + recurrent.extra_size,),
        context.obs_dtype if recurrent is None else np.dtype(np.float32),
        parts.action_shape,
        parts.action_dtype,
        parts.replay,
        frame_stack if recurrent is None else 1,
        scratch,
        normalization,
        next((flat.vector.device for flat in parts.learner.flats.values()), None),
    )
    if make_memory is not None:
        memory: Memory[Any] | None = make_memory(layout)
    elif spec.memory is not None:
        imitates = (
            isinstance(spec.memory, OnPolicySpec)
            and spec.memory.sil_replay_name is not None
        )
        kind = SelfImitationMemory if imitates else MEMORIES.load(spec.memory.name)
        memory = kind.build(spec.memory, layout)
    else:
        memory = None
    return Agent(parts.actor, parts.learner, memory)
