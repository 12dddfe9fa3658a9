"""The distribution whose parameters a policy network puts out."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from slm_lab.agent.device import moved
from slm_lab.agent.distribution.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    DiagonalNormal,
    Distribution,
    LogNormal,
    MultiCategorical,
    MultivariateNormal,
    Product,
    RowColumns,
    TanhNormal,
    TanhPoint,
)
from slm_lab.core.actions import MixedActions
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, FloatArray

ActionSpace: TypeAlias = gymnasium.Space[Any]


@dataclass(frozen=True)
class DistributionFamily:
    """Makes distributions of one kind from a policy network's outputs, (B,
    param_dim)."""

    kind: type[Distribution]
    make: Callable[[Tensor], Distribution]
    param_dim: int
    """Outputs that the network must have."""
    action_shape: tuple[int, ...]
    action_dtype: type[np.generic]
    initial_scale: Callable[[float], Tensor] | None = None
    """Maps a ln σ to the last outputs that may be one learned vector, independent of
    the observation."""
    greedy: bool = False
    """Whether actions are the mode, unless an action policy says otherwise."""
    parts: tuple["FamilyPart", ...] = ()
    """The parts of a product."""

    @property
    def num_bounds(self) -> int:
        """K of its distributions, see `Distribution.num_bounds`."""
        if self.parts:
            return max(part.family.num_bounds for part in self.parts)
        return self.kind.num_bounds

    def __call__(self, params: Tensor) -> Distribution:
        """The distributions with parameters (B, param_dim)."""
        return self.make(params)


@dataclass(frozen=True)
class FamilyPart:
    """One part of a product."""

    family: DistributionFamily
    params: tuple[slice, ...]
    """Its columns of the product's parameters: of the net's outputs first, then of
    ln σ."""
    place: RowColumns
    """Its columns of an action."""

    def params_in(self, params: Tensor) -> Tensor:
        """Its parameters, taken from the product's parameters (B, param_dim)."""
        return torch.cat([params[..., columns] for columns in self.params], -1)

    def arrays_in(self, params: FloatArray) -> FloatArray:
        """`params_in` of arrays."""
        return np.concatenate([params[..., columns] for columns in self.params], -1)

    def write_into(self, params: FloatArray, of_part: FloatArray) -> None:
        """Writes its columns of the product's parameters, (B, param_dim)."""
        start = 0
        for columns in self.params:
            end = start + columns.stop - columns.start
            params[:, columns] = of_part[:, start:end]
            start = end


def distribution_family(action_space: ActionSpace, pdtype: str) -> DistributionFamily:
    """The family that `action_pdtype` names for this action space of one environment.
    Raises LabError when the two do not fit."""
    known = FAMILIES[type(action_space)]
    default = next(iter(known))
    name = pdtype
    if pdtype == "default":
        name = default
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
        kind=Categorical,
        make=Categorical,
        param_dim=int(space.n),
        action_shape=(),
        action_dtype=np.int64,
        greedy=greedy,
    )


def _multi_categorical(space: spaces.MultiDiscrete) -> DistributionFamily:
    sizes = [int(size) for size in space.nvec.flat]
    return DistributionFamily(
        kind=MultiCategorical,
        make=partial(MultiCategorical, sizes=sizes),
        param_dim=sum(sizes),
        action_shape=(len(sizes),),
        action_dtype=np.int64,
    )


def _bernoulli(space: spaces.MultiBinary) -> DistributionFamily:
    size = math.prod(space.shape)
    return DistributionFamily(
        kind=Bernoulli,
        make=Bernoulli,
        param_dim=size,
        action_shape=(size,),
        action_dtype=np.int8,
    )


def _pairs(
    space: spaces.Box,
    kind: type[Distribution],
    make: Callable[[Tensor, Tensor], Distribution],
    has_scale: bool = False,
) -> DistributionFamily:
    """Two parameters for each component; with `has_scale` the second is a ln σ."""
    (size,) = space.shape
    return DistributionFamily(
        kind=kind,
        make=lambda params: make(*params.chunk(2, -1)),
        param_dim=2 * size,
        action_shape=(size,),
        action_dtype=np.float32,
        initial_scale=partial(torch.full, (size,)) if has_scale else None,
    )


def _normal(space: spaces.Box) -> DistributionFamily:
    return _pairs(space, DiagonalNormal, DiagonalNormal, has_scale=True)


def _multivariate_normal(space: spaces.Box) -> DistributionFamily:
    (size,) = space.shape
    num_below = size * (size - 1) // 2
    sizes = [size, num_below + size]

    def initial_scale(log_std: float) -> Tensor:
        return torch.cat([torch.zeros(num_below), torch.full((size,), log_std)])

    return DistributionFamily(
        kind=MultivariateNormal,
        make=lambda params: MultivariateNormal(*torch.split(params, sizes, -1)),
        param_dim=sum(sizes),
        action_shape=(size,),
        action_dtype=np.float32,
        initial_scale=initial_scale,
    )


def _log_normal(space: spaces.Box) -> DistributionFamily:
    low = _bound(space.low, "LogNormal", "lower")

    def make(mean: Tensor, log_std: Tensor) -> Distribution:
        return LogNormal(mean, log_std, low(mean.device))

    return _pairs(space, LogNormal, make, has_scale=True)


def _beta(space: spaces.Box) -> DistributionFamily:
    low = _bound(space.low, "Beta", "lower")
    high = _bound(space.high, "Beta", "upper")

    def make(raw_alpha: Tensor, raw_beta: Tensor) -> Distribution:
        device = raw_alpha.device
        return Beta(raw_alpha, raw_beta, low(device), high(device))

    return _pairs(space, Beta, make)


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


def _product(space: MixedActions) -> DistributionFamily:
    """Independent parts, each with the default distribution of its space. Its
    parameters begin with the logits of choices, so that a mask finds them. Then come
    the other outputs of the net, then every ln σ."""
    families = [distribution_family(part, "default") for part in space.parts]
    kinds = (spaces.Discrete, spaces.MultiDiscrete)
    is_choice = [isinstance(part, kinds) for part in space.parts]
    scales = [_num_scales(family) for family in families]
    widths = [
        family.param_dim - num_scales
        for family, num_scales in zip(families, scales, strict=True)
    ]
    # the choices first
    order = sorted(range(len(families)), key=lambda k: not is_choice[k])
    params: dict[int, tuple[slice, ...]] = {}
    end = 0
    for k in order:
        params[k] = (slice(end, end + widths[k]),)
        end += widths[k]
    for k, num_scales in enumerate(scales):
        if num_scales:
            params[k] = (*params[k], slice(end, end + num_scales))
            end += num_scales
    places = [
        RowColumns(columns, family.action_shape == (), TORCH_TYPES[family.action_dtype])
        for columns, family in zip(space.columns, families, strict=True)
    ]
    parts = tuple(
        FamilyPart(family, params[k], places[k]) for k, family in enumerate(families)
    )

    def make(values: Tensor) -> Product:
        return Product([part.family(part.params_in(values)) for part in parts], places)

    def initial_scale(log_std: float) -> Tensor:
        scales = [family.initial_scale for family in families if family.initial_scale]
        return torch.cat([scale(log_std) for scale in scales])

    return DistributionFamily(
        kind=Product,
        make=make,
        param_dim=end,
        action_shape=space.shape or (),
        action_dtype=np.float32,
        initial_scale=initial_scale if any(scales) else None,
        parts=parts,
    )


def _num_scales(family: DistributionFamily) -> int:
    """How many of its last parameters are ln σ."""
    if family.initial_scale is None:
        return 0
    return len(family.initial_scale(0.0))


TORCH_TYPES: Mapping[type[np.generic], torch.dtype] = {
    np.int64: torch.int64,
    np.int8: torch.int8,
    np.float32: torch.float32,
}
"""The types of actions in NumPy and in torch."""


def squashed_family(
    action_space: ActionSpace, pdtype: str = "default"
) -> DistributionFamily:
    """TanhNormal, for actions with two bounds; in soft actor-critic also the `pdtype`
    "Normal". Raises LabError for other actions, and for any other `pdtype`."""
    if pdtype not in ("default", "Normal"):
        raise LabError(
            f"agent.algorithm.action_pdtype = {pdtype!r}: no squashed distribution; "
            'use "default" or "Normal"'
        )
    space = _bounded(action_space, f"agent.algorithm.action_pdtype = {pdtype!r}")
    return _pairs(space, TanhNormal, TanhNormal)


def deterministic_family(action_space: ActionSpace) -> DistributionFamily:
    """TanhPoint, for actions with two bounds. Raises LabError for other actions."""
    space = _bounded(action_space, "agent.algorithm.name")
    (size,) = space.shape
    return DistributionFamily(
        kind=TanhPoint,
        make=TanhPoint,
        param_dim=size,
        action_shape=(size,),
        action_dtype=np.float32,
    )


def _bounded(action_space: ActionSpace, key: str) -> spaces.Box:
    """The space of continuous actions in [−1, 1]. Raises LabError at `key` for
    others."""
    if not isinstance(action_space, spaces.Box):
        raise LabError(
            f"{key}: a squashed distribution is for continuous actions, the "
            f"environment's are {action_space}; use another algorithm"
        )
    if not np.isfinite([action_space.low, action_space.high]).all():
        raise LabError(
            f"{key}: a squashed distribution needs actions with two bounds each, the "
            f"environment's are {action_space}; use another algorithm"
        )
    return action_space


Builder: TypeAlias = Callable[[Any], DistributionFamily]

FAMILIES: Mapping[type[ActionSpace], Mapping[str, Builder]] = {
    # A hard Gumbel-softmax sample is a categorical one. The two differ only where
    # gradients pass through samples, which a policy gradient does not need.
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
    MixedActions: {"Product": _product},
}
"""The families of each action space, the default first."""
