"""Plays an exported policy beside the agent, and compares the two."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, FloatArray
from slm_lab.experiment.export.policy_graph import PolicyGraph
from slm_lab.experiment.policy import Policy

Outputs: TypeAlias = Callable[[Mapping[str, Array]], Sequence[Array]]
"""From the inputs of a file, by name, to its outputs."""

STEPS, COPIES = 200, 3  # in one environment; of each input, since a file was made with two
TOLERANCE = 1e-5
"""Of float outputs, absolute and relative; of scaled actions in units of half their range."""


class Difference(NamedTuple):
    """The largest absolute differences between a file and the agent."""

    action: float
    values: float
    observations: int
    """Their number."""


def compare(policy: Policy, graph: PolicyGraph, outputs_of: Outputs) -> Difference:
    """Plays `STEPS` steps of the agent. Raises LabError at the first output that is not its own."""
    adapter, actor, largest = policy.adapter, policy.actor, np.zeros(2)
    scaling, starts = adapter.conversions.action.scaling, np.ones(1, np.bool_)
    scales = np.ones(1) if scaling is None else scaling.half_width.clip(1), np.ones(1)
    inputs = {name: each[:1] for name, each in graph.inputs.items()}
    with closing(adapter.make_env()) as env:
        observed, _ = env.reset(seed=0)
        for _ in range(STEPS):
            obs = adapter.batch(observed).obs
            inputs = _next_inputs(inputs, obs, bool(starts[0]))
            outputs = outputs_of({name: np.repeat(x, COPIES, 0) for name, x in inputs.items()})
            features = adapter.policy_obs(obs, starts)
            values = _values(policy, actor.memory_obs(features))
            action = adapter.env_action(actor.act_greedily(features))
            gaps = map(_gap, ("actions", "values"), (action, values), outputs, scales)
            largest = np.maximum(largest, list(gaps))
            inputs |= zip(("state",), (state[:1] for state in outputs[2:]), strict=False)
            observed, _, terminated, truncated, _ = env.step(action[0])
            starts[:] = terminated or truncated
            if starts[0]:
                observed, _ = env.reset()
            actor.end_episodes(starts)
    return Difference(float(largest[0]), float(largest[1]), STEPS)


def _values(policy: Policy, rows: Array) -> Array:
    """The first output of the agent's network, (1, P)."""
    module = policy.actor.module
    assert module is not None, "a graph was made of it"
    with torch.inference_mode():
        device = next(module.parameters()).device
        values: Array = module(torch.from_numpy(rows).to(device))[0].cpu().numpy()
    return values


def _next_inputs(inputs: Mapping[str, Array], obs: Array, starts: bool) -> dict[str, Array]:
    """The inputs of a file for the next observation (1, ...): see docs/trained_agents.md."""
    before = inputs["obs"]
    newest = obs.astype(before.dtype)
    if before.ndim > obs.ndim:
        earlier = np.repeat(newest[:, None], before.shape[1], 1) if starts else before
        newest = np.concatenate([earlier[:, 1:], newest[:, None]], 1)
    state = {name: x * np.float32(not starts) for name, x in inputs.items() if name == "state"}
    return {"obs": newest, **state}


def _gap(name: str, own: Array, found: Array, scale: FloatArray) -> float:
    """The largest difference of a row (1, ...) of the agent to (COPIES, ...) of the file."""
    flat, expected = found.reshape(COPIES, -1), own.reshape(1, -1)
    tolerance = TOLERANCE if own.dtype.kind == "f" else 0.0
    is_close = np.allclose(flat, expected, tolerance, tolerance * scale)
    if not is_close or (found.shape[1:], found.dtype) != (own.shape[1:], own.dtype):
        raise LabError(
            f"the exported {name} are not the agent's, {found[0].tolist()} instead of "
            f"{own[0].tolist()}; nothing was written. Please report this policy"
        )
    return float(np.abs(flat.astype(float) - expected).max())
