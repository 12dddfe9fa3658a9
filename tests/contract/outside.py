"""Agents outside a training, as `slm_lab.load` makes them, for the rows of the contract
table."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.api.agent import Agent
from slm_lab.env.make import make_env
from slm_lab.records.checkpoints import AgentCheckpoint
from tests.contract.table import ALGORITHM_ROWS, cases

SEED, N = 3, 2
CASES = [case for case in cases(ALGORITHM_ROWS) if case.values[0][0] != "Random"]
"""The rows of the contract table, without the agent that has no network."""


def small_spec(case):
    """The spec of a row, with N environments."""
    name, variant = case
    spec = ALGORITHM_ROWS[name][variant].spec
    env = spec.env.model_copy(update={"num_envs": N, "vectorization_mode": "sync"})
    return spec.model_copy(update={"env": env})


def evaluation_env(spec):
    """The environments of an evaluation, with moments that change every observation."""
    env = make_env(spec.env, SEED, training=False)
    for block in env.moments:
        size = (block.stop - block.start - 1) // 2
        moments = [[9.0], np.linspace(0.1, 0.4, size), np.linspace(2, 30, size)]
        env.statistics[block] = np.concatenate(moments)
    return env


def untrained(spec, vector):
    spaces = vector.observation_space, vector.action_space
    return build_agent(spec.agent.for_acting(), *spaces, N, AgentSeeds(0, 1, 2))


def outside(spec, learner, statistics):
    """The same agent, as `slm_lab.load` makes it of its snapshot."""
    flats = {name: flat.state_dict() for name, flat in learner.flats.items()}
    snapshot = {"frame": 7, "flats": flats, "statistics": statistics.copy()}
    saved = AgentCheckpoint(0, "best", 7, snapshot, Path("file"))
    record = SimpleNamespace(trial=0, folder=Path("run"), place=Path("run"))
    run = SimpleNamespace(spec=spec, record=record)
    return Agent(run, saved, SEED)


def batched(observations):
    """Single observations as a batch, part by part."""
    first = observations[0]
    if isinstance(first, dict):
        return {key: batched([each[key] for each in observations]) for key in first}
    if isinstance(first, tuple):
        return tuple(batched(list(parts)) for parts in zip(*observations, strict=True))
    return np.stack(observations)
