"""The policy of a saved agent: an actor, and the conversions around it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from slm_lab.agent.algorithm.algorithm import Actor, AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array
from slm_lab.env.adapter import Batch, PolicyAdapter
from slm_lab.env.convert.nested import element
from slm_lab.env.failure import closing_env
from slm_lab.records.archive import naming
from slm_lab.records.checkpoints import AgentCheckpoint
from slm_lab.records.playable_run import PlayableRun
from slm_lab.session.build import place_on_cpu
from slm_lab.session.evaluator import frame_of
from slm_lab.spec.schema.agent import AgentSpec, net_for_role


class Policy(NamedTuple):
    """The actor and the adapter of a saved agent."""

    adapter: PolicyAdapter
    actor: Actor


class PolicyStep(NamedTuple):
    """A step of a policy in one environment; B is 1."""

    batch: Batch
    starts: bool
    rows: Array
    """The network's input, (B, ...)"""
    action: Any
    """(B, *shape of an action of the environment), or dicts and tuples of these"""


def build_policy(run: PlayableRun, saved: AgentCheckpoint, seed: int = 0) -> Policy:
    """The policy of the agent `saved` of `run` on the CPU, for one environment; random
    draws depend on `seed`. Raises as `AgentCheckpoint.load_into` and
    `env.make.make_env`."""
    draws = (int(draw) for draw in np.random.SeedSequence(seed).generate_state(3))
    with naming(run.record.place, run.record.folder):
        env = run.spec.of_saved_agent(run.record.trial).env
        frame = frame_of(saved.snapshot)
        adapter = PolicyAdapter(env.at_frame(frame), _parts_seen(run.spec.agent))
        spaces = adapter.layout, adapter.action_space
        agent = build_agent(
            place_on_cpu(run.spec).agent.for_acting(), *spaces, 1, AgentSeeds(*draws)
        )
        saved.load_into(agent.learner.flats, adapter.statistics)
    agent.actor.version = 1  # trained: no random warm-up
    return Policy(adapter, agent.actor)


def _parts_seen(agent: AgentSpec) -> tuple[str, ...] | None:
    """The parts of an observation that the actor sees; None: all."""
    if agent.net is None:
        return None
    return net_for_role(agent, "actor").obs


def play(policy: Policy, steps: int) -> Iterator[PolicyStep]:
    """The first greedy steps of a new policy. Raises LabError if the environment breaks
    its space, or a mask allows nothing."""
    adapter, actor = policy
    starts = np.ones(1, np.bool_)
    with closing_env(adapter.make_env()) as env:
        observed, info = env.reset(seed=0)
        for _ in range(steps):
            batch = _batch_of(adapter, observed, adapter.mask_in(info))
            features = adapter.policy_obs(batch.obs, starts)
            rows = actor.memory_obs(features).copy()
            action = adapter.conversions.action.convert(actor.act_greedily(features))
            yield PolicyStep(batch, bool(starts[0]), rows, action)
            single = element(adapter.env_action_space, action, 0)
            observed, _, terminated, truncated, info = env.step(single)
            starts[:] = terminated or truncated
            if starts[0]:
                observed, info = env.reset()
            actor.end_episodes(starts)


def _batch_of(adapter: PolicyAdapter, observed: Any, mask: Any) -> Batch:
    """The batch by `PolicyAdapter.batch` of what an environment gave. A fault in it is
    not the caller's."""
    try:
        return adapter.batch(observed, mask)
    except ValueError as error:
        raise LabError(str(error)) from None
