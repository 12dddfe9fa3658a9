"""Update rules: how a gradient changes the flat vector.

Adam and RMSprop are the lab's own, a few in-place operations on whole vectors; their state is made
at construction, so that it can live in shared memory from the start. `GlobalAdam` and
`GlobalRMSprop` are the same rules under the names that say so in a spec. Every other torch
optimizer runs as it is, over the flat vector or, where it needs shapes, over the views.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import CheckpointError
from slm_lab.core.types import StateDict


class UpdateRule(ABC):
    """Changes a vector of parameters in place by its gradient."""

    @abstractmethod
    def apply(self, vector: Tensor, grad: Tensor, lr: float) -> None:
        """One step on `vector` (P,) with `grad` (P,) and learning rate `lr`, without autograd."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """The moments and step count themselves, in an order that is always the same."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Copies of the moments and step count."""

    @abstractmethod
    def misfit(self, state: StateDict) -> str | None:
        """How a saved state is one of another rule ("saved as …, built as …"); None if it fits."""

    def load_state_dict(self, state: StateDict) -> None:
        """Copies a saved state in place. Raises CheckpointError for that of another rule."""
        refuse_misfit(self.misfit(state))
        self._load(state)

    @abstractmethod
    def _load(self, state: StateDict) -> None:
        """Copies a state that fits."""


class TensorStateRule(UpdateRule):
    """A rule whose whole state is a dict of tensors, loaded in place so that sharing survives."""

    state: dict[str, Tensor]

    def bind(self, state: Mapping[str, Tensor]) -> None:
        """Goes on with other tensors of the same names, and with what stands in them."""
        if state.keys() != self.state.keys():
            raise ValueError(f"cannot bind {list(self.state)} to {list(state)}")
        self.state = dict(state)

    @override
    def tensors(self) -> list[Tensor]:
        return list(self.state.values())

    @override
    def state_dict(self) -> StateDict:
        """Clones of every state tensor, on the CPU."""
        return {name: tensor.cpu().clone() for name, tensor in self.state.items()}

    @override
    def misfit(self, state: StateDict) -> str | None:
        """Known by the names of the tensors."""
        return misfit_of(state, self.state)

    @override
    def _load(self, state: StateDict) -> None:
        for name, tensor in self.state.items():
            tensor.copy_(state[name])


class Adam(TensorStateRule):
    """Adam (arXiv:1412.6980, algorithm 1), or AdamW (arXiv:1711.05101) with `decoupled`.

    Calls the kernel behind `torch.optim.Adam(fused=True)` on the flat vector: bit for bit the same
    numbers, without the per-call bookkeeping.
    """

    def __init__(
        self,
        flat: FlatParameters,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
        decoupled: bool = False,
    ) -> None:
        self._beta1, self._beta2 = betas
        self._eps = eps
        self._weight_decay = weight_decay
        self._amsgrad = amsgrad
        self._maximize = maximize
        self._kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
        names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else [])]
        self.state = {name: torch.zeros_like(flat.vector) for name in names}
        self.state["step"] = torch.zeros((), device=flat.vector.device)

    @override
    def apply(self, vector: Tensor, grad: Tensor, lr: float) -> None:
        """θ ← θ − lr · m̂ / (√v̂ + ε)."""
        state = self.state
        state["step"].add_(1)
        self._kernel(
            [vector],
            [grad],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [state["max_exp_avg_sq"]] if self._amsgrad else [],
            [state["step"]],
            lr=lr,
            beta1=self._beta1,
            beta2=self._beta2,
            weight_decay=self._weight_decay,
            eps=self._eps,
            amsgrad=self._amsgrad,
            maximize=self._maximize,
        )


class RMSprop(TensorStateRule):
    """RMSprop (Tieleman & Hinton, 2012), with torch's options and torch's order of operations."""

    def __init__(
        self,
        flat: FlatParameters,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        maximize: bool = False,
    ) -> None:
        self._alpha = alpha
        self._eps = eps
        self._weight_decay = weight_decay
        self._momentum = momentum
        self._maximize = maximize
        self._centered = centered
        names = [
            "square_avg",
            *(["grad_avg"] if centered else []),
            *(["momentum_buffer"] if momentum > 0 else []),
        ]
        self.state = {name: torch.zeros_like(flat.vector) for name in names}

    @override
    def apply(self, vector: Tensor, grad: Tensor, lr: float) -> None:
        """θ ← θ − lr · g / (√E[g²] + ε)."""
        grad = -grad if self._maximize else grad
        if self._weight_decay:
            grad = grad.add(vector, alpha=self._weight_decay)
        square_avg = self.state["square_avg"]
        square_avg.mul_(self._alpha).addcmul_(grad, grad, value=1 - self._alpha)
        if self._centered:
            grad_avg = self.state["grad_avg"]
            grad_avg.lerp_(grad, 1 - self._alpha)
            variance = square_avg.addcmul(grad_avg, grad_avg, value=-1)
            # Below zero by rounding, or where two workers have written the averages at once.
            scale = variance.clamp_(min=0.0).sqrt_().add_(self._eps)
        else:
            scale = square_avg.sqrt().add_(self._eps)
        if self._momentum > 0:
            buffer = self.state["momentum_buffer"]
            buffer.mul_(self._momentum).addcdiv_(grad, scale)
            vector.add_(buffer, alpha=-lr)
        else:
            vector.addcdiv_(grad, scale, value=-lr)


class TorchRule(UpdateRule):
    """Any other torch.optim optimizer, given the flat vector or the views that need shapes.

    It keeps to the vector and gradient of the network that it was made for.
    """

    def __init__(
        self, flat: FlatParameters, optimizer: type[torch.optim.Optimizer], **args: Any
    ) -> None:
        if optimizer in SHAPED_OPTIMIZERS:
            parameters = flat.views
        else:
            whole = nn.Parameter(flat.vector)
            whole.grad = flat.grad
            parameters = [whole]
        self._optimizer = optimizer(parameters, **args)

    @override
    def apply(self, vector: Tensor, grad: Tensor, lr: float) -> None:
        """One step of the torch optimizer."""
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()

    @override
    def tensors(self) -> list[Tensor]:
        """None before the first step, when torch makes them."""
        entries = self._optimizer.state.values()
        return [each for entry in entries for each in entry.values() if isinstance(each, Tensor)]

    @override
    def state_dict(self) -> StateDict:
        """The optimizer's own state, copied."""
        saved = self._optimizer.state_dict()["state"]
        return {
            "optimizer": type(self._optimizer).__name__,
            "state": {
                index: {k: v.clone() if isinstance(v, Tensor) else v for k, v in entry.items()}
                for index, entry in saved.items()
            },
        }

    @override
    def misfit(self, state: StateDict) -> str | None:
        """Known by the name of the optimizer."""
        return misfit_of(state, self.state_dict())

    @override
    def _load(self, state: StateDict) -> None:
        """Restores the optimizer's state; its arguments stay those of the spec."""
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state["state"], "param_groups": groups})


SHAPED_OPTIMIZERS: tuple[type[torch.optim.Optimizer], ...] = (torch.optim.Adafactor,)
"""Those whose formulas look at the shape of a parameter."""


def misfit_of(saved: Mapping[str, Any], built: Mapping[str, Any]) -> str | None:
    """See `UpdateRule.misfit`: whether two states are of the same rule."""
    before, now = _message(saved), _message(built)
    return None if before == now else f"saved as {before} and is built as {now}"


def refuse_misfit(misfit: str | None) -> None:
    """Raises CheckpointError where there is a misfit."""
    if misfit is not None:
        raise CheckpointError(
            f"the state of an optimizer was {misfit}: the spec of the run was changed since; undo "
            "the change of its optim_spec"
        )


def _message(state: Mapping[str, Any]) -> str:
    """What a state is: of a torch optimizer its name, of the lab's own rules their tensors."""
    return str(state["optimizer"]) if "optimizer" in state else ", ".join(sorted(state))
