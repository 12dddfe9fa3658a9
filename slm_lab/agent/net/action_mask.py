"""The actions that an environment allows, as networks see them (arXiv:2006.14171)."""

import math
from typing import final

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.distribution.distributions import MASKED_LOGIT
from slm_lab.core.masks import mask_columns
from slm_lab.core.observation import ObservationLayout
from slm_lab.core.types import Array, FloatArray


def mask_first(values: Tensor, allowed: Tensor) -> Tensor:
    """Values (B, P), of which the first A belong to choices, with those that are not
    `allowed` (B, A) masked."""
    num_choices = allowed.shape[-1]
    masked = torch.where(allowed, values[..., :num_choices], MASKED_LOGIT)
    if num_choices == values.shape[-1]:
        return masked
    return torch.cat([masked, values[..., num_choices:]], -1)


@final
class ActionMask:
    """Reads the mask in rows of observations, or in packed rows. The logit or Q of an
    action that is not allowed becomes `MASKED_LOGIT`. So its probability and the
    gradient through it are zero, and it is never the greatest. Where actions have other
    parts too, their parameters follow the logits, and have no mask."""

    def __init__(self, layout: ObservationLayout) -> None:
        columns = mask_columns(layout)
        assert columns is not None
        self._columns = columns

    def mask_arrays(self, values: FloatArray, obs: Array) -> FloatArray:
        """Values (B, A) of actions for rows (B, D), masked. They may be (B, P), with
        parameters of other parts behind them."""
        allowed = obs[:, self._columns] != 0
        num_choices = allowed.shape[-1]
        choices = values[:, :num_choices]
        masked = np.where(allowed, choices, np.float32(MASKED_LOGIT))
        if num_choices == values.shape[-1]:
            return masked
        return np.hstack([masked, values[:, num_choices:]])

    def __call__(self, values: Tensor, obs: Tensor) -> Tensor:
        """`mask_arrays` of tensors."""
        return mask_first(values, obs[:, self._columns] != 0)

    def greatest_entropy(self, obs: Tensor) -> Tensor:
        """(B,) ln c / ln n: the greatest entropy among the c allowed actions, as a
        share of the greatest entropy among all n."""
        allowed = obs[:, self._columns] != 0
        count = allowed.sum(-1).clamp(min=1)
        return count.log() / math.log(allowed.shape[-1])


def action_mask(layout: ObservationLayout) -> ActionMask | None:
    """The mask in observations of this layout; None without one."""
    if layout.mask is None:
        return None
    return ActionMask(layout)
