"""Epochs of shuffled minibatches of a rollout."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.device import moved
from slm_lab.agent.optim.process_group import ProcessGroup
from slm_lab.agent.recurrent_state import RecurrentLayout, shuffled_order
from slm_lab.spec.schema.algorithm import MinibatchLearningSpec

SamplesT = TypeVar("SamplesT", bound=NamedTuple)
"""A record of tensors with B rows each; None stands for no tensor."""


def shuffled_minibatches(
    samples: SamplesT,
    obs: Tensor,
    spec: MinibatchLearningSpec,
    recurrent: RecurrentLayout | None,
    generator: torch.Generator,
    group: ProcessGroup,
) -> Iterator[SamplesT]:
    """Every sample once per epoch, in a fresh order each time. `obs` are the
    observations (B, …) of the samples; with recurrent nets, sequences of them stay
    together. All ranks have equally many minibatches. A rank with fewer samples has
    smaller ones."""
    sizes = minibatch_sizes(len(obs), spec.minibatch_size)
    most = int(group.all_gather(np.array([len(sizes)])).max())
    if most > len(sizes):
        sizes = even_sizes(len(obs), most)
    for _ in range(spec.training_epoch):
        order = shuffled_order(obs, recurrent, generator)
        in_order = _take(samples, moved(order, obs.device))
        yield from _split(in_order, sizes)


def minibatch_sizes(size: int, minibatch_size: int) -> list[int]:
    """The sizes of the minibatches of `size` samples, in order. The last has the rest.
    A rest of one sample has no deviation to standardise by; it joins the minibatch
    before it."""
    starts = list(range(0, size, minibatch_size))
    if size % minibatch_size == 1 and len(starts) > 1 and minibatch_size > 1:
        starts.pop()
    return [stop - start for start, stop in pairwise([*starts, size])]


def even_sizes(size: int, count: int) -> list[int]:
    """The sizes of `count` minibatches of `size` samples, which differ by one at
    most."""
    least, rest = divmod(size, count)
    return [least + 1] * rest + [least] * (count - rest)


def _take(samples: SamplesT, index: Tensor) -> SamplesT:
    """The samples at `index`, in that order."""
    return samples._make(t if t is None else t.index_select(0, index) for t in samples)


def _split(samples: SamplesT, sizes: list[int]) -> Iterator[SamplesT]:
    """Consecutive parts, as views."""
    parts = ([t] * len(sizes) if t is None else torch.split(t, sizes) for t in samples)
    return map(samples._make, zip(*parts, strict=True))
