"""What a batch looked like when a loss went wrong."""

from dataclasses import fields

import torch
from torch import Tensor


def describe_batch(batch: object) -> str:
    """One line per tensor of a dataclass: shape, range, and how many values are not finite."""
    lines = [f"the batch ({type(batch).__name__}):"]
    for field in fields(batch):  # type: ignore[arg-type]
        value = getattr(batch, field.name)
        if isinstance(value, Tensor) and value.numel():
            lines.append(f"  {field.name} {_describe(value)}")
    return "\n".join(lines)


def _describe(value: Tensor) -> str:
    shape = tuple(value.shape)
    numbers = value.double()
    finite = numbers[torch.isfinite(numbers)]
    broken = numbers.numel() - finite.numel()
    text = f"{shape}"
    if finite.numel():
        text += (
            f" min {finite.min().item():.6g} mean {finite.mean().item():.6g}"
            f" max {finite.max().item():.6g}"
        )
    return text + (f", {broken} values not finite" if broken else "")
