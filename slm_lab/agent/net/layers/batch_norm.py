"""Batch normalisation needs a batch."""

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm as AnyBatchNorm

from slm_lab.agent.net.layers.batch_renorm import BatchRenorm
from slm_lab.core.errors import LabError


def refuse_single_samples(net: nn.Module) -> None:
    """Has every batch normalisation in `net` raise LabError where it learns from one sample: the
    moments of one number say nothing, and torch's own error does not say whose they are."""
    for module in net.modules():
        if isinstance(module, AnyBatchNorm | BatchRenorm):
            module.register_forward_pre_hook(_needs_several)


def _needs_several(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    (x,) = inputs
    if module.training and x.numel() == x.shape[1]:
        raise LabError(
            "agent.net: batch normalisation cannot learn from one sample alone; make the batch "
            "larger (agent.memory.batch_size, training_frequency × num_envs, minibatch_size, or "
            "episodes of more than one step), or use layer_norm"
        )
