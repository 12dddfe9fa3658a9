"""The agent and environment that a Trial's parent builds to size shared memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from slm_lab.agent.agent import Agent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.agent.net.device import resolve_device
from slm_lab.env.make import make_env
from slm_lab.env.vector_env import VectorEnv
from slm_lab.session.seeding import SessionSeeds
from slm_lab.session.torch_setup import on_cpu, set_arithmetic
from slm_lab.spec.schema.spec import Spec


@contextmanager
def prototype(
    spec: Spec,
    seeds: SessionSeeds,
    make_memory: Callable[[MemoryLayout], Memory[Any]] | None = None,
) -> Iterator[tuple[Agent, VectorEnv]]:
    """A Session's agent with these seeds, on the CPU and without the spec's memory, and one
    environment.

    `make_memory` receives the spec's `num_envs`. Raises LabError if a required GPU is missing.
    """
    for net in spec.agent.nets.values():
        resolve_device(net.gpu)
    set_arithmetic(spec.meta.threads)  # as in a worker: the thread count changes the last bits
    one = spec.env.model_copy(update={"num_envs": 1, "vectorization_mode": "sync"})
    env = make_env(one, seeds.env, gamma=spec.agent.algorithm.gamma or 1.0)
    try:
        agent = build_agent(
            on_cpu(spec.agent.model_copy(update={"memory": None})),
            env.observation_space,
            env.action_space,
            spec.env.num_envs,
            AgentSeeds(seeds.init, seeds.action, seeds.sampling),
            frame_stack=env.frame_stack,
            make_memory=make_memory,
        )
        yield agent, env
    finally:
        env.close()
