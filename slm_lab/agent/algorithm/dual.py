"""Positive numbers that are trained by their logarithms, such as the multipliers of
constraints."""

from collections.abc import Sequence
from typing import final

import torch
from torch import nn

from slm_lab.agent.device import resolve_device
from slm_lab.agent.from_spec.networks import build_optimizer
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import Optimizer
from slm_lab.spec.schema.agent import AgentSpec, net_for_role


@final
class LogNumbers(nn.Module):
    """The logarithms of one number, or of several, (K,)."""

    def __init__(self, start: float | Sequence[float] = 0.0) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(start))


def build_dual_optimizer(
    agent: AgentSpec,
    numbers: LogNumbers,
    lr: float | None,
    bounds: tuple[float, float],
) -> Optimizer:
    """The optimizer of these numbers, which it moves to the actor's device. It keeps
    the logarithms between two bounds. Class, schedule and, without an `lr`, learning
    rate are the actor's."""
    net_spec = net_for_role(agent, "actor")
    actors = net_spec.optim_spec
    # All other arguments have torch's defaults. So a β₁ that is meant for a network is
    # not used for a few numbers. Weight decay would pull them towards 1.
    rate = actors.args["lr"] if lr is None else lr
    dual_spec = net_spec.model_copy(
        update={"optim_spec": actors.with_defaults(rate), "clip_grad_val": None}
    )
    numbers.to(resolve_device(net_spec.gpu))
    return build_optimizer(dual_spec, FlatParameters(numbers), bounds)
