"""Plays an exported policy beside the agent, and compares the two."""

from contextlib import ExitStack, closing
from typing import NamedTuple

import numpy as np
import torch

from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, BoolArray, FloatArray
from slm_lab.experiment.export.graph_file import Run
from slm_lab.experiment.export.policy_graph import PolicyGraph
from slm_lab.experiment.policy import Policy

NUM_ENVS = 3
STEPS = 100
TOLERANCE = 1e-5
"""Of float values and actions, absolute and relative; for scaled actions in units of half their
range. Other actions must be equal."""
UNSCALED: FloatArray = np.ones(1)


class Difference(NamedTuple):
    """The largest absolute differences between a file and the agent."""

    action: float
    values: float
    observations: int
    """Their number."""


def compare(policy: Policy, graph: PolicyGraph, run: Run) -> Difference:
    """Plays `STEPS` steps of `NUM_ENVS` environments; the agent acts.

    Raises LabError at the first action or value of `run` that is not the agent's.
    """
    policy.actor.begin(NUM_ENVS)
    inputs = {name: np.repeat(each[:1], NUM_ENVS, 0) for name, each in graph.inputs.items()}
    starts, largest = np.ones(NUM_ENVS, np.bool_), np.zeros(2)
    scaling = policy.adapter.conversions.action.scaling
    scale = UNSCALED if scaling is None else scaling.half_width.clip(1)
    with ExitStack() as closed_at_the_end:
        make_env = policy.adapter.make_env
        envs = [closed_at_the_end.enter_context(closing(make_env())) for _ in range(NUM_ENVS)]
        observed = [env.reset(seed=seed)[0] for seed, env in enumerate(envs)]
        for _ in range(STEPS):
            obs = np.concatenate([policy.adapter.batch(each).obs for each in observed])
            inputs = _next_inputs(inputs, obs, starts)
            expected = _act(policy, obs, starts)
            outputs = run(inputs)
            _check_equal("actions", expected[0], outputs[0], scale)
            _check_equal("values", expected[1], outputs[1])
            _, alone, *_ = run({name: each[:1] for name, each in inputs.items()})
            _check_equal("values of a batch of one", expected[1][:1], alone)
            gaps = [np.abs(expected[i].astype(float) - outputs[i]).max() for i in (0, 1)]
            largest = np.maximum(largest, gaps)
            inputs |= dict(zip(list(inputs)[1:], outputs[2:], strict=True))
            for n, env in enumerate(envs):
                observed[n], _, terminated, truncated, _ = env.step(expected[0][n])
                starts[n] = terminated or truncated
                if starts[n]:
                    observed[n], _ = env.reset()
            policy.actor.end_episodes(starts)
    return Difference(float(largest[0]), float(largest[1]), NUM_ENVS * STEPS)


def _act(policy: Policy, obs: Array, starts: BoolArray) -> tuple[Array, Array]:
    """The agent's own actions (B, ...), and the first output of its network, (B, P)."""
    module = policy.actor.module
    assert module is not None, "a graph was made of it"
    features = policy.adapter.policy_obs(obs, starts)
    rows = torch.from_numpy(policy.actor.memory_obs(features))
    with torch.inference_mode():
        params = module(rows.to(next(module.parameters()).device))[0].cpu().numpy()
    return policy.adapter.env_action(policy.actor.act_greedily(features)), params


def _next_inputs(inputs: dict[str, Array], obs: Array, starts: BoolArray) -> dict[str, Array]:
    """What a user of the file passes to it: the newest frames, and the state of the episode."""
    frames, state = inputs["obs"], inputs.get("state")
    newest = obs.astype(frames.dtype)
    if frames.ndim > obs.ndim:
        moved = np.concatenate([frames[:, 1:], newest[:, None]], 1)
        moved[starts] = newest[starts, None]
        newest = moved
    if state is None:
        return {"obs": newest}
    return {"obs": newest, "state": np.where(starts[:, None], np.float32(0), state)}


def _check_equal(name: str, expected: Array, found: Array, scale: FloatArray = UNSCALED) -> None:
    """Compares (B, ...); `scale` (K,) multiplies the absolute tolerance of the components."""
    tolerance = TOLERANCE if expected.dtype.kind == "f" else 0.0
    same_kind = (found.shape, found.dtype) == (expected.shape, expected.dtype)
    one, other = (each.reshape(len(each), -1) for each in (found, expected))
    if not same_kind or not np.allclose(one, other, tolerance, tolerance * scale):
        raise LabError(
            f"the exported {name} are not the agent's, {found[:1].tolist()} instead of "
            f"{expected[:1].tolist()}; nothing was written. Please report this policy"
        )
