"""The statistics of a batch whose loss was not finite."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor

from slm_lab.core.errors import NonFiniteLossError

OBSERVATIONS = ("observations", "env.normalize_obs")
REWARDS = ("rewards", "env.reward_scale or env.normalize_reward")
ENV_TENSORS = {
    "obs": OBSERVATIONS,
    "next_obs": OBSERVATIONS,
    "bootstrap_obs": OBSERVATIONS,
    "reward": REWARDS,
}
"""Tensors of a batch that the environment has filled: what they are, and keys that
scale them."""

LARGE = 1e6
"""A size of observations and rewards from which on they may be why a loss is not
finite."""


@contextmanager
def describe_on_error(batch: object) -> Iterator[None]:
    """Adds a description of `batch` to a NonFiniteLossError. A source of batches is no
    record: the batches sampled from it are described instead."""
    try:
        yield
    except NonFiniteLossError as error:
        if not is_dataclass(batch):
            raise
        message = f"{error}{_broken_before(batch)}\n{describe_batch(batch)}"
        raise NonFiniteLossError(message) from error


def _broken_before(batch: object) -> str:
    """Which values from the environment are not finite or very large, as a message;
    else empty."""
    large = ""
    for name, (what, keys) in ENV_TENSORS.items():
        value = getattr(batch, name, None)
        if not isinstance(value, Tensor) or not value.numel():
            continue
        if not torch.isfinite(value).all():
            beyond = ""
            if name == "reward" and not torch.isnan(value).any():
                beyond = f", or beyond float32: scale those by {keys}"
            return f": the environment gave {what} that are not finite{beyond}"
        size = value.double().abs().max().item()
        if size >= LARGE:
            large = (
                f": the environment gave {what} of up to {size:.3g}; scale them by "
                f"{keys}"
            )
    return large


def describe_batch(batch: object) -> str:
    """One line per tensor of a dataclass: shape, range, and how many values are not
    finite."""
    lines = [f"the batch ({type(batch).__name__}):"]
    for field in fields(batch):  # type: ignore[arg-type]
        value = getattr(batch, field.name)
        if isinstance(value, Tensor) and value.numel():
            lines.append(f"  {field.name} {_describe(value)}")
    return "\n".join(lines)


def _describe(value: Tensor) -> str:
    numbers = value.double()
    text = str(tuple(value.shape))
    finite = numbers[torch.isfinite(numbers)]
    if len(finite):
        least, mean, most = (
            each.item() for each in (finite.min(), finite.mean(), finite.max())
        )
        text += f" min {least:.6g} mean {mean:.6g} max {most:.6g}"
    broken = numbers.numel() - len(finite)
    return text + (f", {broken} values not finite" if broken else "")
