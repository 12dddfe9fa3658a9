"""The agent and environment that a Trial's parent builds to size shared memory."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from slm_lab.agent.agent import Agent
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.agent.net.device import resolve_device
from slm_lab.env.vector_env import VectorEnv
from slm_lab.session.parts import env_and_agent
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
    agent_spec = on_cpu(spec.agent.model_copy(update={"memory": None}))
    bare = spec.model_copy(update={"agent": agent_spec})
    env, agent = env_and_agent(bare, seeds, one, make_memory=make_memory)
    with closing(env):
        yield agent, env
