"""Builds environments and an agent from a spec, and prepares torch for them."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.agent.build import build_agent
from slm_lab.agent.device import resolve_device
from slm_lab.agent.from_spec.schedule import schedule_of
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.core.errors import undone_on_failure
from slm_lab.core.schedule import Schedule
from slm_lab.env.device_env import DeviceEnv, make_device_env
from slm_lab.env.make import make_env
from slm_lab.env.vector.raw import CopyMarks
from slm_lab.env.vector_env import VectorEnv
from slm_lab.session.seeding import SessionSeeds
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
) -> tuple[VectorEnv, LearningAgent]:
    """Environments of `env_spec`, by default the spec's, and an agent for all agents of
    `spec.env.num_envs` copies. For the options see `build_agent`, for `marks` see
    `make_env`."""
    algorithm = spec.agent.algorithm
    gamma = Schedule(1.0)  # the Random agent does not discount
    if algorithm.gamma is not None:
        gamma = schedule_of(algorithm, "gamma")
    env: VectorEnv | None = None
    if correction is None and make_memory is None:
        env = _env_on_device(spec, env_spec or spec.env, seeds.env)
    if env is None:
        env = make_env(
            env_spec or spec.env,
            seeds.env,
            gamma=gamma,
            process_seed=seeds.processes.copies,
            marks=marks,
        )
    with undone_on_failure(env.close):
        agent = build_agent(
            spec.agent,
            env.layout,
            env.action_space,
            num_envs=spec.env.num_envs * env.num_agents,
            seeds=AgentSeeds(seeds.init, seeds.action, seeds.sampling),
            scratch=scratch,
            correction=correction,
            normalization=env.normalization,
            make_memory=make_memory,
            steps_on_device=isinstance(env, DeviceEnv),
            may_be_absent=env.may_be_absent,
        )
    return env, agent


def _env_on_device(spec: Spec, env_spec: EnvSpec, seed: int) -> DeviceEnv | None:
    """Environments on the GPU of the agent's network. None where the network is on no
    GPU, or where agent or environments need the host in every step."""
    net = spec.agent.net
    algorithm = spec.agent.algorithm
    if net is None or not algorithm.KEEPS_STEPS_ON_DEVICE:
        return None
    device = resolve_device(net.gpu)
    needs_host = (
        device.type == "cpu"
        or any(net.is_recurrent for net in spec.agent.nets.values())
        or algorithm.action_policy != "default"
        or spec.meta.distributed is not False
    )
    if needs_host:
        return None
    return make_device_env(env_spec, seed, device.type)


@contextmanager
def prototype(
    spec: Spec, seeds: SessionSeeds, make_memory: MakeMemory | None = None
) -> Iterator[tuple[LearningAgent, VectorEnv]]:
    """An agent with these seeds, on the CPU and without the spec's memory, and one
    environment. A Trial's parent sizes shared memory by them. `make_memory` receives
    the spec's `num_envs`. Raises LabError if a required GPU is missing."""
    for net in spec.agent.nets.values():
        resolve_device(net.gpu)
    # as in a worker: the thread count changes the last bits
    set_up_torch(spec.meta.threads)
    single = spec.env.model_copy(update={"num_envs": 1, "vectorization_mode": "sync"})
    bare = spec.model_copy(
        update={"agent": spec.agent.model_copy(update={"memory": None})}
    )
    env, agent = env_and_agent(
        place_on_cpu(bare), seeds, single, make_memory=make_memory
    )
    with closing(env):
        yield agent, env


CPU_PRECISION = {"float32": "float32", "auto": "auto", "bf16": "auto"}
"""The precision of a net that is moved to the CPU, which may have no instructions for
bf16."""


def set_up_torch(threads: int) -> None:
    """Uses `threads` threads per operation and flushes subnormal floats to zero. Every
    process of a run uses the same settings, because both change the last bits. Adam's
    moments of weights behind a dead unit decay into subnormal numbers (below 1e-38). A
    CPU is up to 100 times slower on these."""
    for dtype in (np.float32, np.float64):
        np.finfo(dtype)  # later NumPy 1 would warn that subnormal numbers are zero
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)


@contextmanager
def torch_settings(threads: int) -> Iterator[None]:
    """`set_up_torch` for a while, in a process that is not the lab's own; floats are
    float32."""
    before = torch.get_num_threads()
    dtype = torch.get_default_dtype()
    flushes = bool((torch.full((1,), 1e-40) * 1.0).item() == 0.0)
    torch.set_default_dtype(torch.float32)
    set_up_torch(threads)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(before)
        torch.set_flush_denormal(flushes)


def place_on_cpu(spec: Spec, only: object = None) -> Spec:
    """The spec with all nets on the CPU, or only those whose `gpu` equals `only`. A net
    that is there stays as it is: an actor computes as its learner does."""
    moved = {
        key: net.model_copy(
            update={"gpu": False, "precision": CPU_PRECISION[net.precision]}
        )
        for key, net in spec.agent.nets.items()
        if net.gpu is not False and only in (None, net.gpu)
    }
    return spec.model_copy(update={"agent": spec.agent.model_copy(update=moved)})
