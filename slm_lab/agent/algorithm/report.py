"""Gradient steps, and the numbers that a training event reports."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

Report: TypeAlias = Mapping[str, float | Tensor]
"""Numbers by column. For a network on a GPU they are scalar tensors there, because
reading one waits for the GPU."""


class Update(NamedTuple):
    """The result of one gradient step."""

    report: Report
    error: Tensor | None = None
    """(B,) the error of the prediction for each sample, valid until the next step. None
    if the algorithm has no predictions whose errors a memory asks for."""
    was_left_out: bool | Tensor = False
    """Whether no step was taken. After a step on a GPU it is a scalar tensor there,
    valid until the next step."""


GradientStep: TypeAlias = Callable[..., Update]
"""A gradient step on inputs. All else that it reads is constant, or tensors changed in
place. An input is a number or a record of tensors. A record is a tuple or dataclass in
which None stands for no tensor."""


def number(scalar: Tensor) -> float | Tensor:
    """The value of a scalar: a float, or on a GPU a tensor there, without gradient."""
    if scalar.is_cpu:
        return scalar.item()
    return scalar.detach()


def mean(x: Tensor) -> float | Tensor:
    """The mean of values without gradient as a `number`. On the CPU torch takes longer
    for few."""
    if not x.is_cpu:
        return x.mean()
    return float(np.add.reduce(x.numpy(), None)) / x.numel()


def moments(x: Tensor) -> tuple[float | Tensor, float | Tensor]:
    """Mean and deviation of at least two values without gradient, each a `number`. On
    the CPU torch takes five times as long."""
    if not x.is_cpu:
        std, mean = torch.std_mean(x)
        return mean, std
    values = x.numpy().ravel().astype(np.float64)
    center = np.add.reduce(values) / values.size
    values -= center
    return float(center), math.sqrt(np.dot(values, values) / (values.size - 1))


def mean_report(reports: Sequence[Report]) -> dict[str, float | Tensor]:
    """The mean of every number over the reports that have it."""
    names = dict.fromkeys(name for report in reports for name in report)
    return {name: _mean([r[name] for r in reports if name in r]) for name in names}


def _mean(numbers: Sequence[float | Tensor]) -> float | Tensor:
    if isinstance(numbers[0], Tensor):
        return torch.stack(cast(list[Tensor], numbers)).mean()
    return sum(numbers) / len(numbers)


def read(report: Report) -> dict[str, float]:
    """The report in floats; from a GPU by one copy, for which the host waits."""
    away = {name: value for name, value in report.items() if isinstance(value, Tensor)}
    here = {
        name: value for name, value in report.items() if not isinstance(value, Tensor)
    }
    values = torch.stack(tuple(away.values())).tolist() if away else []
    return {**here, **dict(zip(away, values, strict=True))}
