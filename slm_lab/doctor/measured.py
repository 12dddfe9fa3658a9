"""Findings about the best agent and its environment, which are tried for some steps."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import eq
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from slm_lab.core.text import significant as text
from slm_lab.core.types import Array
from slm_lab.doctor.finding import Finding, advising, set_to
from slm_lab.doctor.learning import LOWER_LR
from slm_lab.env.adapter import PolicyAdapter
from slm_lab.env.convert.normalize import EPSILON
from slm_lab.env.failure import closing_env
from slm_lab.env.interface import Env
from slm_lab.records.policy import Policy, play

STEPS = 300
MOST = 0.8
"""The share of dead units from which a layer is ill."""
CORNERS = 3
TRIED = 10
"""The number of corners of the action space that are tried, and of steps with each."""
ROUNDING = 1e-3
"""The share of its mean up to which a component's deviation may come from rounding."""
WIDE = 1 / 8
LEAST_SHARE = 2.0**-20
"""The share of the bounds from which on they are too wide; and the smallest that is
tried."""


class FiredUnits(TorchFunctionMode):
    """Notes for every ReLU which of its units are above zero for any input."""

    def __init__(self) -> None:
        super().__init__()
        self.fired: list[Tensor] = []

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func.__name__ in ("relu", "relu_") and output.ndim > 1:
            # (units or channels, the rest)
            by_unit = output.transpose(0, 1).flatten(1) > 0
            self.fired.append(by_unit.any(1))
        return output


def findings(policy: Policy, spec: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings about a policy of a recorded spec, or about its environment."""
    yield from dead_relus(dead_units(policy), spec)
    yield from tiny_observations(policy.adapter)
    yield from wide_bounds(policy.adapter)


def dead_units(policy: Policy) -> list[float]:
    """The share of units of each ReLU layer that are zero in `STEPS` steps of the
    policy."""
    module = policy.actor.module
    if module is None:
        return []
    seen = [step.rows for step in play(policy, STEPS)]
    device = next(module.parameters()).device
    with torch.inference_mode(), FiredUnits() as noted:
        module(torch.from_numpy(np.concatenate(seen)).to(device))
    return [1 - float(fired.float().mean()) for fired in noted.fired]


def dead_relus(shares: list[float], spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Layers most of whose ReLUs are zero for every input: Lu et al. 2019,
    arXiv:1903.06733."""
    if max(shares, default=0.0) >= MOST:
        numbers = f"by layer {', '.join(f'{share:.0%}' for share in shares)} never fire"
        path = "agent.net.hid_layers_activation"
        yield advising(
            "most units of a layer are dead",
            numbers,
            spec,
            LOWER_LR,
            set_to(path, "tanh", words=' "tanh" or "leaky_relu"'),
        )


def tiny_observations(adapter: PolicyAdapter) -> Iterator[Finding]:
    """Observations that vary by less than the root of the floor under a normalised
    variance. So `env.normalize_obs` leaves them near 0. A component that only rounding
    varies does not count."""
    normalizer = adapter.conversions.normalizer
    if normalizer is None:
        return
    deviation = np.sqrt(normalizer.statistics.variance)
    varies = deviation > ROUNDING * np.abs(normalizer.statistics.mean)
    is_tiny = varies & (deviation < np.sqrt(EPSILON))
    if is_tiny.sum() > varies.sum() / 2:
        largest = float(deviation[is_tiny].max())
        numbers = (
            f"{is_tiny.sum()} of {varies.sum()} components vary by at most "
            f"{text(largest)}"
        )
        advice = (
            "multiply them in a wrapper (env.wrappers): env.normalize_obs divides by "
            "at least "
        )
        what = "observations are too small to be normalised"
        yield Finding(what, numbers, f"{advice}{text(np.sqrt(EPSILON))}")


def wide_bounds(adapter: PolicyAdapter) -> Iterator[Finding]:
    """Actions whose effect stops changing far inside the bounds, because the
    environment clips them (Fujita and Maeda 2018, arXiv:1802.07564). It tries corners
    of the action space, and halves them until one does something else."""
    space = adapter.env_action_space
    if not isinstance(space, Box) or not np.isfinite([space.low, space.high]).all():
        return
    low = space.low.astype(float)
    high = space.high.astype(float)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (CORNERS, *space.shape))
    with closing_env(adapter.make_env()) as env:

        def effects(share: float) -> list[bytes]:
            """The effect of each corner's action, at a share of the way from the centre
            to it."""
            actions = (low + high) / 2 + share * signs * (high - low) / 2
            return [
                _effect(adapter, env, action.astype(space.dtype)) for action in actions
            ]

        whole = effects(1.0)
        share = 1.0
        if any(map(eq, whole, effects(0.0))):
            return  # nothing follows from actions that have no effect at all
        while share > LEAST_SHARE and effects(share / 2) == whole:
            share /= 2
    if share <= WIDE:
        ends = (
            f"{text(float(high.flat[0]))} does the same as "
            f"{text(share * float(high.flat[0]))}"
        )
        advice = (
            "narrow the bounds of the environment's action space to those that it "
            "honours"
        )
        yield Finding(
            "the bounds of actions are far too wide", f"an action of {ends}", advice
        )


def _effect(adapter: PolicyAdapter, env: Env, action: Array) -> bytes:
    """The observations and rewards of some steps with this action."""
    env.reset(seed=0)
    seen = []
    for _ in range(TRIED):
        observed, reward, terminated, truncated, _ = env.step(action)
        seen += [adapter.batch(observed).obs.tobytes(), np.float64(reward).tobytes()]
        if terminated or truncated:
            break
    return b"".join(seen)
