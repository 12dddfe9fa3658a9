"""Builds environments and an agent from a spec."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from slm_lab.agent.agent import Agent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.agent.build import build_agent
from slm_lab.agent.device import resolve_device
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.core.errors import undone_on_failure
from slm_lab.env.make import make_env
from slm_lab.env.vector.raw import CopyMarks
from slm_lab.env.vector_env import VectorEnv
from slm_lab.session.seeding import SessionSeeds
from slm_lab.session.torch_setup import on_cpu, set_up_torch
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec

MakeMemory: TypeAlias = Callable[[MemoryLayout], Memory[Any]]


def env_and_agent(
    spec: Spec,
    seeds: SessionSeeds,
    env_spec: EnvSpec | None = None,
    *,
    scratch: Path | None = None,
    correction: VTrace | None = None,
    make_memory: MakeMemory | None = None,
    marks: CopyMarks | None = None,
) -> tuple[VectorEnv, Agent]:
    """Environments of `env_spec`, by default the spec's, and an agent for
    `spec.env.num_envs`. For the options see `build_agent`, for `marks` see
    `make_env`."""
    gamma = spec.agent.algorithm.gamma
    env = make_env(
        env_spec or spec.env,
        seeds.env,
        gamma=1.0 if gamma is None else gamma,  # the Random agent does not discount
        process_seed=seeds.processes.copies,
        marks=marks,
    )
    with undone_on_failure(env.close):
        agent = build_agent(
            spec.agent,
            env.observation_space,
            env.action_space,
            num_envs=spec.env.num_envs,
            seeds=AgentSeeds(seeds.init, seeds.action, seeds.sampling),
            scratch=scratch,
            frame_stack=env.frame_stack,
            correction=correction,
            normalization=env.normalization,
            make_memory=make_memory,
        )
    return env, agent


@contextmanager
def prototype(
    spec: Spec, seeds: SessionSeeds, make_memory: MakeMemory | None = None
) -> Iterator[tuple[Agent, VectorEnv]]:
    """An agent with these seeds, on the CPU and without the spec's memory, and one
    environment. A Trial's parent sizes shared memory by them. `make_memory` receives
    the spec's `num_envs`. Raises LabError if a required GPU is missing."""
    for net in spec.agent.nets.values():
        resolve_device(net.gpu)
    # as in a worker: the thread count changes the last bits
    set_up_torch(spec.meta.threads)
    one = spec.env.model_copy(update={"num_envs": 1, "vectorization_mode": "sync"})
    bare = spec.model_copy(
        update={"agent": spec.agent.model_copy(update={"memory": None})}
    )
    env, agent = env_and_agent(on_cpu(bare), seeds, one, make_memory=make_memory)
    with closing(env):
        yield agent, env
