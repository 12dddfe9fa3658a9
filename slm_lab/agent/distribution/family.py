"""The distribution whose parameters a policy network puts out."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeAlias, overload

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from slm_lab.agent.autodiff import Differentiable, Node
from slm_lab.agent.device import moved
from slm_lab.agent.distribution import nodes
from slm_lab.agent.distribution.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    DiagonalNormal,
    Distribution,
    LogNormal,
    MultiCategorical,
    MultivariateNormal,
    TanhNormal,
)
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, FloatArray

Space: TypeAlias = gymnasium.Space[Any]
Draw: TypeAlias = Callable[
    [FloatArray, np.random.Generator], tuple[FloatArray, FloatArray]
]
"""From parameters (B, param_dim) to actions and their log-probabilities (B,), without
torch."""


@dataclass(frozen=True)
class DistributionFamily:
    """Makes distributions of one kind from a policy network's outputs, (B,
    param_dim)."""

    make: Callable[[Tensor], Distribution]
    param_dim: int
    """Outputs that the network must have."""
    action_shape: tuple[int, ...]
    action_dtype: type[np.generic]
    initial_scale: Callable[[float], Tensor] | None = None
    """From a ln σ to those last outputs that may be one learned vector, independent of
    the observation."""
    greedy: bool = False
    """Whether actions are the mode, unless an action policy says otherwise."""
    from_node: Callable[[Node], nodes.NodeDistribution] | None = None
    """`make` without autograd; None where it is not written out."""
    draw: Draw | None = None
    """Draws faster than `make`'s distributions do; None where it is not written."""

    @overload
    def __call__(self, params: Tensor) -> Distribution: ...

    @overload
    def __call__(self, params: Node) -> nodes.NodeDistribution: ...

    def __call__(self, params: Differentiable) -> Distribution | nodes.NodeDistribution:
        """The distributions with parameters (B, param_dim)."""
        if isinstance(params, Node):
            assert self.from_node is not None
            return self.from_node(params)
        return self.make(params)


def distribution_family(action_space: Space, pdtype: str) -> DistributionFamily:
    """The family that `action_pdtype` names for this action space of one environment.
    Raises LabError when the two do not fit."""
    known = FAMILIES[type(action_space)]
    default = next(iter(known))
    name = default if pdtype == "default" else pdtype
    if name not in known:
        allowed = ", ".join(f'"{other}"' for other in known)
        raise LabError(
            f"agent.algorithm.action_pdtype = {pdtype!r}: the environment's actions "
            "are "
            f'{action_space}; use "default" or one of {allowed}'
        )
    return known[name](action_space)


def _categorical(space: spaces.Discrete, greedy: bool = False) -> DistributionFamily:
    return DistributionFamily(
        Categorical,
        int(space.n),
        (),
        np.int64,
        greedy=greedy,
        from_node=nodes.CategoricalNode,
    )


def _multi_categorical(space: spaces.MultiDiscrete) -> DistributionFamily:
    sizes = [int(size) for size in space.nvec.flat]
    return DistributionFamily(
        lambda params: MultiCategorical(params, sizes),
        sum(sizes),
        (len(sizes),),
        np.int64,
    )


def _bernoulli(space: spaces.MultiBinary) -> DistributionFamily:
    size = math.prod(space.shape)
    return DistributionFamily(Bernoulli, size, (size,), np.int8)


def _pairs(
    space: spaces.Box,
    make: Callable[[Tensor, Tensor], Distribution],
    has_scale: bool = False,
) -> DistributionFamily:
    """Two parameters for each component; with `has_scale` the second is a ln σ."""
    (size,) = space.shape
    return DistributionFamily(
        lambda params: make(*params.chunk(2, -1)),
        2 * size,
        (size,),
        np.float32,
        (lambda log_std: torch.full((size,), log_std)) if has_scale else None,
    )


def _normal(space: spaces.Box) -> DistributionFamily:
    family = _pairs(space, DiagonalNormal, True)
    return replace(family, from_node=nodes.NormalNode, draw=nodes.draw_normal)


def _multivariate_normal(space: spaces.Box) -> DistributionFamily:
    (size,) = space.shape
    num_below = size * (size - 1) // 2
    return DistributionFamily(
        lambda params: MultivariateNormal(
            *torch.split(params, [size, num_below + size], -1)
        ),
        2 * size + num_below,
        (size,),
        np.float32,
        lambda log_std: torch.cat(
            [torch.zeros(num_below), torch.full((size,), log_std)]
        ),
    )


def _log_normal(space: spaces.Box) -> DistributionFamily:
    low = _bound(space.low, "LogNormal", "lower")
    return _pairs(space, lambda m, log_std: LogNormal(m, log_std, low(m.device)), True)


def _beta(space: spaces.Box) -> DistributionFamily:
    low, high = _bound(space.low, "Beta", "lower"), _bound(space.high, "Beta", "upper")
    return _pairs(space, lambda a, b: Beta(a, b, low(a.device), high(a.device)))


def _bound(values: Array, pdtype: str, which: str) -> Callable[[torch.device], Tensor]:
    """The bounds on a device, copied there once: a CUDA graph cannot hold copies from
    the host."""
    if not np.isfinite(values).all():
        raise LabError(
            f"agent.algorithm.action_pdtype = {pdtype!r}: needs actions with a "
            f"{which} bound, the "
            f'environment\'s have {values.tolist()}; use "Normal"'
        )
    return cache(partial(moved, torch.as_tensor(values, dtype=torch.float32)))


def squashed_family(action_space: Space, pdtype: str = "default") -> DistributionFamily:
    """TanhNormal, for actions with two bounds; in soft actor-critic also the `pdtype`
    "Normal". Raises LabError for other actions, and for any other `pdtype`."""
    given = f"agent.algorithm.action_pdtype = {pdtype!r}"
    if pdtype not in ("default", "Normal"):
        raise LabError(f'{given}: no squashed distribution; use "default" or "Normal"')
    if not isinstance(action_space, spaces.Box):
        raise LabError(
            f"{given}: a squashed distribution is for continuous actions, the "
            f"environment's are {action_space}; use another algorithm"
        )
    if not np.isfinite([action_space.low, action_space.high]).all():
        raise LabError(
            f"{given}: a squashed distribution needs actions with two bounds each, the "
            f"environment's are {action_space}; use another algorithm"
        )
    return _pairs(action_space, TanhNormal)


Builder: TypeAlias = Callable[[Any], DistributionFamily]

FAMILIES: Mapping[type[Space], Mapping[str, Builder]] = {
    # A hard Gumbel-softmax sample is a categorical one; the two differ where gradients
    # pass through samples, which a policy gradient does not need.
    spaces.Discrete: {
        "Categorical": _categorical,
        "GumbelSoftmax": _categorical,
        "Argmax": partial(_categorical, greedy=True),
    },
    spaces.MultiDiscrete: {"MultiCategorical": _multi_categorical},
    spaces.MultiBinary: {"Bernoulli": _bernoulli},
    spaces.Box: {
        "Normal": _normal,
        "Beta": _beta,
        "LogNormal": _log_normal,
        "MultivariateNormal": _multivariate_normal,
    },
}
"""By action space, the default first."""
