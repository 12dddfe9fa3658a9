"""Update rules: how a gradient changes the flat vector.

Adam and RMSprop are a few in-place operations on whole vectors. Their state is
allocated at construction, so that it can be in shared memory from the start.
`GlobalAdam` and `GlobalRMSprop` name the same rules. Every other torch optimizer runs
over the flat vector or over its views. `Lookahead` is a rule around any of them."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.optim.flat import FlatParameters, Order, rearranged
from slm_lab.agent.torch_versions import ADAFACTOR, attribute_of
from slm_lab.core.errors import CheckpointError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import StateDict


class UpdateRule(SavedFields):
    """Changes a vector of parameters in place by its gradient. It saves its moments and
    step count."""

    @abstractmethod
    def apply(
        self,
        vector: Tensor,
        grad: Tensor,
        lr: float | Tensor,
        skip: Tensor | None = None,
    ) -> None:
        """One step on `vector` (P,) with `grad` (P,) and learning rate `lr`, without
        autograd. On a GPU `lr` is a scalar tensor there. The step changes nothing if
        the scalar `skip` is 1.0."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """The moments and step count themselves, always in the same order."""

    def shareable_state(self) -> Mapping[str, Tensor]:
        """The whole state, tensor by tensor. Raises TypeError where it cannot be
        shared."""
        raise TypeError(f"the state of {type(self).__name__} cannot be shared")

    def bind(self, state: Mapping[str, Tensor]) -> None:
        """Continues with other tensors of the same names, and with their values. Raises
        TypeError where the state cannot be shared."""
        raise TypeError(f"the state of {type(self).__name__} cannot be shared")

    def rearranged(self, state: StateDict, order: Order) -> StateDict:
        """A saved state, whose parameters were in this `order`, in the order of now."""
        rearranged_state: StateDict = rearranged(state, order)
        return rearranged_state


class TensorStateRule(UpdateRule):
    """A rule whose whole state is a dict of tensors, loaded in place so that sharing
    survives."""

    merged: ClassVar = ("state",)

    state: dict[str, Tensor]

    @override
    def shareable_state(self) -> Mapping[str, Tensor]:
        return self.state

    @override
    def bind(self, state: Mapping[str, Tensor]) -> None:
        if state.keys() != self.state.keys():
            raise ValueError(f"cannot bind {list(self.state)} to {list(state)}")
        self.state = dict(state)

    @override
    def tensors(self) -> list[Tensor]:
        return list(self.state.values())


class Adam(TensorStateRule):
    """Adam (arXiv:1412.6980, algorithm 1), or AdamW (arXiv:1711.05101) with
    `decoupled`. Calls the kernel behind `torch.optim.Adam(fused=True)` on the flat
    vector: bit for bit the same numbers, without the per-call bookkeeping."""

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
        self._kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
        self._options: dict[str, Any] = {
            "beta1": betas[0],
            "beta2": betas[1],
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
        }
        names = ["exp_avg", "exp_avg_sq"]
        if amsgrad:
            names.append("max_exp_avg_sq")
        self.state = {name: torch.zeros_like(flat.vector) for name in names}
        self.state["step"] = torch.zeros((), device=flat.vector.device)

    @override
    def apply(
        self,
        vector: Tensor,
        grad: Tensor,
        lr: float | Tensor,
        skip: Tensor | None = None,
    ) -> None:
        """θ ← θ − lr · m̂ / (√v̂ + ε)."""
        state = self.state
        state["step"].add_(1 if skip is None else 1 - skip)
        greatest = [state["max_exp_avg_sq"]] if "max_exp_avg_sq" in state else []
        moments = [state["exp_avg"]], [state["exp_avg_sq"]], greatest
        self._kernel(
            [vector],
            [grad],
            *moments,
            [state["step"]],
            lr=lr,
            found_inf=skip,
            **self._options,
        )


class RMSprop(TensorStateRule):
    """RMSprop (Tieleman & Hinton, 2012), with torch's options and torch's order of
    operations."""

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
        names = ["square_avg"]
        if centered:
            names.append("grad_avg")
        if momentum > 0:
            names.append("momentum_buffer")
        self.state = {name: torch.zeros_like(flat.vector) for name in names}

    @override
    def apply(
        self,
        vector: Tensor,
        grad: Tensor,
        lr: float | Tensor,
        skip: Tensor | None = None,
    ) -> None:
        """θ ← θ − lr · g / (√E[g²] + ε)."""
        if skip is not None and skip.item():  # waits for the GPU, which Adam need not
            return
        if self._maximize:
            grad = -grad
        if self._weight_decay:
            grad = grad.add(vector, alpha=self._weight_decay)
        square_avg = self.state["square_avg"]
        square_avg.mul_(self._alpha).addcmul_(grad, grad, value=1 - self._alpha)
        if self._centered:
            grad_avg = self.state["grad_avg"]
            grad_avg.lerp_(grad, 1 - self._alpha)
            variance = square_avg.addcmul(grad_avg, grad_avg, value=-1)
            # Below zero by rounding, or where two workers have written the averages at
            # once.
            scale = variance.clamp_(min=0.0).sqrt_().add_(self._eps)
        else:
            scale = square_avg.sqrt().add_(self._eps)
        if self._momentum > 0:
            buffer = self.state["momentum_buffer"]
            buffer.mul_(self._momentum).addcdiv_(grad, scale)
            vector.add_(buffer, alpha=-float(lr))
        else:
            vector.addcdiv_(grad, scale, value=-float(lr))


class TorchRule(UpdateRule):
    """Any other torch.optim optimizer, given the flat vector or the views that need
    shapes. It only steps the network that it was made for."""

    def __init__(
        self, flat: FlatParameters, optimizer: type[torch.optim.Optimizer], **args: Any
    ) -> None:
        self._is_shaped = optimizer in ADAFACTOR
        if self._is_shaped:
            parameters = flat.views
        else:
            whole = nn.Parameter(flat.vector)
            whole.grad = flat.grad
            parameters = [whole]
        self._optimizer = optimizer(parameters, **args)

    @override
    def apply(
        self,
        vector: Tensor,
        grad: Tensor,
        lr: float | Tensor,
        skip: Tensor | None = None,
    ) -> None:
        if skip is not None and skip.item():
            return
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()

    @override
    def tensors(self) -> list[Tensor]:
        """Empty before the first step, when torch makes them."""
        entries = self._optimizer.state.values()
        return [
            value
            for entry in entries
            for value in entry.values()
            if isinstance(value, Tensor)
        ]

    @override
    def state_dict(self) -> StateDict:
        saved = self._optimizer.state_dict()["state"]
        return {
            "optimizer": type(self._optimizer).__name__,
            "state": {
                index: {
                    k: v.clone() if isinstance(v, Tensor) else v
                    for k, v in entry.items()
                }
                for index, entry in saved.items()
            },
        }

    @override
    def rearranged(self, state: StateDict, order: Order) -> StateDict:
        """Returns the state in this order. With views there is an entry for each
        parameter, which has its shape."""
        if not self._is_shaped:
            return super().rearranged(state, order)
        saved = state["state"]
        entries = {
            now: saved[before] for now, before in enumerate(order.parameters) if saved
        }
        return {**state, "state": entries}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores the optimizer's state; its arguments stay as in the spec."""
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict(
            {"state": state["state"], "param_groups": groups}
        )


class Lookahead(UpdateRule):
    """Lookahead (arXiv:1907.08610, algorithm 1) around another rule. That rule takes k
    fast steps. Then the slow weights move towards the fast weights, which begin again
    from there:

        φ ← φ + α (θ − φ),   θ ← φ

    The state of the inner rule stays as it is, the paper's default. While no fast step
    has been taken, the fast weights are the slow weights. So these are copied at the
    first fast step, and a network may get other weights before.

    Hogwild! workers share the state of both. Then k counts the steps of all workers.
    One that steps between the two lines above loses its step."""

    merged: ClassVar = ("_inner", "_slow")

    def __init__(
        self, flat: FlatParameters, inner: UpdateRule, k: int, alpha: float
    ) -> None:
        self._inner = inner
        self._k = k
        self._alpha = alpha
        self._slow = {
            "slow": flat.vector.detach().clone(),
            # on the CPU, where reading it does not wait for a GPU
            "fast_steps": torch.zeros(()),
        }

    @override
    def apply(
        self,
        vector: Tensor,
        grad: Tensor,
        lr: float | Tensor,
        skip: Tensor | None = None,
    ) -> None:
        if skip is not None and skip.item():  # waits for the GPU, which Adam need not
            return
        slow = self._slow["slow"]
        fast_steps = self._slow["fast_steps"]
        if fast_steps == 0:
            slow.copy_(vector)
        self._inner.apply(vector, grad, lr)
        fast_steps.add_(1)
        # another worker may have counted, too
        if fast_steps >= self._k:
            fast_steps.zero_()
            slow.lerp_(vector, self._alpha)
            vector.copy_(slow)

    @override
    def tensors(self) -> list[Tensor]:
        return [*self._inner.tensors(), *self._slow.values()]

    @override
    def shareable_state(self) -> Mapping[str, Tensor]:
        return {**self._inner.shareable_state(), **self._slow}

    @override
    def bind(self, state: Mapping[str, Tensor]) -> None:
        inner = {name: state[name] for name in state if name not in self._slow}
        self._inner.bind(inner)
        self._slow = {name: state[name] for name in self._slow}

    @override
    def rearranged(self, state: StateDict, order: Order) -> StateDict:
        inner = self._inner.rearranged(state, order)
        return {**inner, "slow": rearranged(state["slow"], order)}


IMPLEMENTATION_ARGS = ("foreach", "fused")
"""Arguments of torch optimizers that choose an implementation and change no formula."""


def build_rule(name: str, args: Mapping[str, Any], flat: FlatParameters) -> UpdateRule:
    """The update rule `name` with its arguments except the learning rate. The rule
    inside Lookahead is the argument `optimizer`, a name with arguments."""
    if name == "Lookahead":
        optimizer = dict(args["optimizer"])
        inner = build_rule(optimizer.pop("name"), optimizer, flat)
        return Lookahead(flat, inner, args["k"], args["alpha"])
    if name in ("Adam", "GlobalAdam", "AdamW", "RMSprop", "GlobalRMSprop"):
        rule_args = {k: v for k, v in args.items() if k not in IMPLEMENTATION_ARGS}
        if name in ("RMSprop", "GlobalRMSprop"):
            return RMSprop(flat, **rule_args)
        if name == "AdamW":
            return Adam(flat, **{"weight_decay": 1e-2, **rule_args}, decoupled=True)
        decoupled = bool(rule_args.pop("decoupled_weight_decay", False))
        return Adam(flat, **rule_args, decoupled=decoupled)
    return TorchRule(flat, attribute_of(torch.optim, name), **args)


def restore_rule(rule: UpdateRule, state: StateDict, order: Order | None) -> None:
    """Restores a rule in place; the saved parameters were in this `order`, None: as
    they are now. Raises CheckpointError for the state of another rule."""
    check_same_rule(state, rule.state_dict())
    if order is not None:
        state = rule.rearranged(state, order)
    rule.load_state_dict(state)


def check_same_rule(saved: Mapping[str, Any], built: Mapping[str, Any]) -> None:
    """Raises CheckpointError if the two states are of different rules."""
    before = _message(saved)
    now = _message(built)
    if before != now:
        raise CheckpointError(
            f"the state of an optimizer was saved as {before} and is built as {now}: "
            "the spec of the run was changed; undo the change of its optim_spec"
        )


def _message(state: Mapping[str, Any]) -> str:
    names = sorted(state.keys() - {"optimizer", "state"})
    if "optimizer" in state:
        names.insert(0, str(state["optimizer"]))
    return ", ".join(names)
