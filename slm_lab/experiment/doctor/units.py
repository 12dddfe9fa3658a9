"""Units of a trained policy that never fire."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from slm_lab.experiment.doctor.case import Finding
from slm_lab.experiment.policy import Policy, play

STEPS = 300
MOST = 0.8
"""The share of dead units from which a layer is ill."""


class _Watch(TorchFunctionMode):
    """Notes for every ReLU which of its units are above zero for any input."""

    def __init__(self) -> None:
        super().__init__()
        self.fired: list[Tensor] = []

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func.__name__ in ("relu", "relu_") and output.ndim > 1:
            by_unit = output.transpose(0, 1).flatten(1) > 0  # (units or channels, the rest)
            self.fired.append(by_unit.any(1))
        return output


def dead_units(policy: Policy) -> list[float]:
    """The share of units of each ReLU layer that are zero in `STEPS` steps of the policy."""
    module = policy.actor.module
    if module is None:
        return []
    seen = [step.rows for step in play(policy, STEPS)]
    device = next(module.parameters()).device
    with torch.inference_mode(), _Watch() as watch:
        module(torch.from_numpy(np.concatenate(seen)).to(device))
    return [1 - float(fired.float().mean()) for fired in watch.fired]


def dead_relus(shares: list[float]) -> Finding | None:
    """Layers most of whose ReLUs are zero for every input: Lu et al. 2019, arXiv:1903.06733."""
    if max(shares, default=0.0) < MOST:
        return None
    numbers = ", ".join(f"{share:.0%}" for share in shares)
    advice = 'a lower agent.net.optim_spec.lr, or hid_layers_activation "tanh" or "leaky_relu"'
    return Finding("most units of a layer are dead", f"by layer {numbers} never fire", advice)
