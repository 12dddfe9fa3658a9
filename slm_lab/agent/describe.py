"""The statistics of a batch whose loss was not finite."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor

from slm_lab.core.errors import NonFiniteLossError

ENV_TENSORS = {
    "obs": "observations",
    "next_obs": "observations",
    "bootstrap_obs": "observations",
    "reward": "rewards",
}
"""Tensors of a batch that the environment has filled."""


@contextmanager
def describe_on_error(batch: object) -> Iterator[None]:
    """Adds a description of `batch` to a NonFiniteLossError. A source of batches is no record: the
    batches sampled from it are described instead."""
    try:
        yield
    except NonFiniteLossError as error:
        if not is_dataclass(batch):
            raise
        message = f"{error}{_broken_before(batch)}\n{describe_batch(batch)}"
        raise NonFiniteLossError(message) from error


def _broken_before(batch: object) -> str:
    """Which values from the environment are not finite, as a message; else empty."""
    for name, what in ENV_TENSORS.items():
        value = getattr(batch, name, None)
        if isinstance(value, Tensor) and not torch.isfinite(value).all():
            return f": the environment gave {what} that are not finite"
    return ""


def describe_batch(batch: object) -> str:
    """One line per tensor of a dataclass: shape, range, and how many values are not finite."""
    lines = [f"the batch ({type(batch).__name__}):"]
    for field in fields(batch):  # type: ignore[arg-type]
        value = getattr(batch, field.name)
        if isinstance(value, Tensor) and value.numel():
            lines.append(f"  {field.name} {_describe(value)}")
    return "\n".join(lines)


def _describe(value: Tensor) -> str:
    numbers, text = value.double(), str(tuple(value.shape))
    finite = numbers[torch.isfinite(numbers)]
    if len(finite):
        least, mean, most = (each.item() for each in (finite.min(), finite.mean(), finite.max()))
        text += f" min {least:.6g} mean {mean:.6g} max {most:.6g}"
    broken = numbers.numel() - len(finite)
    return text + (f", {broken} values not finite" if broken else "")
