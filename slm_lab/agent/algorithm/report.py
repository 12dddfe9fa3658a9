"""The numbers that a training event reports."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.autodiff import Differentiable
from slm_lab.agent.optim.rule import Number

Report: TypeAlias = Mapping[str, Number]
"""Numbers by column."""


def number(scalar: Differentiable) -> Number:
    """The value of a scalar: a float, or for one on a GPU a tensor there, without
    gradient."""
    is_away = isinstance(scalar, Tensor) and not scalar.is_cpu
    return scalar.detach() if is_away else scalar.item()


def mean(x: Tensor) -> Number:
    """The mean of values without gradient as a `number`. On the CPU torch takes longer
    for few."""
    return float(np.add.reduce(x.numpy(), None)) / x.numel() if x.is_cpu else x.mean()


def mean_report(reports: Sequence[Report]) -> dict[str, Number]:
    """The mean of every number over the reports that have it."""
    names = dict.fromkeys(name for report in reports for name in report)
    return {name: _mean([r[name] for r in reports if name in r]) for name in names}


def _mean(numbers: Sequence[Number]) -> Number:
    if isinstance(numbers[0], Tensor):
        return torch.stack(cast(list[Tensor], numbers)).mean()
    return sum(numbers) / len(numbers)


def read(report: Report) -> dict[str, float]:
    """The report in floats; from a GPU by one copy, for which the host waits."""
    away = {name: each for name, each in report.items() if isinstance(each, Tensor)}
    here = {name: each for name, each in report.items() if not isinstance(each, Tensor)}
    values = torch.stack(tuple(away.values())).tolist() if away else []
    return {**here, **dict(zip(away, values, strict=True))}
