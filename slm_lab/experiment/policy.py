"""The policy of a saved agent: an actor, and the conversions around it."""

from typing import NamedTuple

import numpy as np

from slm_lab.agent.algorithm.algorithm import Actor, AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.env.adapter import PolicyAdapter
from slm_lab.experiment.saved_run import SavedAgent
from slm_lab.spec.schema.spec import Spec


class Policy(NamedTuple):
    """What acts for a saved agent, outside of training."""

    adapter: PolicyAdapter
    actor: Actor


def build_policy(spec: Spec, saved: SavedAgent, seed: int = 0) -> Policy:
    """The policy of `saved`, for one environment; random draws depend on `seed`.

    Raises as `SavedAgent.load_into` and `env.make.make_env`.
    """
    adapter = PolicyAdapter(spec.env)
    spaces = adapter.observation_space, adapter.action_space
    draws = (int(draw) for draw in np.random.SeedSequence(seed).generate_state(3))
    without_memory = spec.agent.model_copy(update={"memory": None})
    agent = build_agent(without_memory, *spaces, 1, AgentSeeds(*draws))
    saved.load_into(agent.learner.flats, adapter.statistics)
    agent.actor.version = 1  # trained: no random warm-up
    return Policy(adapter, agent.actor)
