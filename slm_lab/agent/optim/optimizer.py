"""The optimizer an algorithm sees, `optimizer.step(loss)`, its learning rate, and where
parallel training joins it."""

import math
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.process_group import ProcessGroup, SoloGroup
from slm_lab.agent.optim.rule import Adam, UpdateRule, restore_rule
from slm_lab.core.errors import NonFiniteLossError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import StateDict


class LearningRate:
    """A constant learning rate; in subclasses a function of the trial's frame clock.
    Stateless but for its value."""

    def __init__(self, lr: float) -> None:
        self.value = lr

    def set_frame(self, frame: int) -> None:
        """Moves the schedule to `frame`; called once before each training event."""


class LinearRate(LearningRate):
    """Falls from `lr` to `min_factor · lr` at `frame` frames, then stays constant."""

    def __init__(self, lr: float, frame: float, min_factor: float = 0.0) -> None:
        super().__init__(lr)
        self._lr = lr
        self._last_frame = frame
        self._min_factor = min_factor

    @override
    def set_frame(self, frame: int) -> None:
        """lr · max(1 − (1 − min_factor) · frame / last frame, min_factor)."""
        progress = min(frame / self._last_frame, 1.0)
        self.value = self._lr * (1 - (1 - self._min_factor) * progress)


class TorchRate(LearningRate):
    """Any scheduler of torch.optim.lr_scheduler, with frames for its epochs. It drives
    the learning rate of a dummy optimizer, so that one implementation serves every
    update rule. Torch computes the rate at any epoch, so nothing has to be counted."""

    def __init__(self, lr: float, name: str, args: Mapping[str, Any]) -> None:
        self._stand_in = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
        self._scheduler = getattr(torch.optim.lr_scheduler, name)(
            self._stand_in, **args
        )
        # of OneCycleLR
        self._last = int(getattr(self._scheduler, "total_steps", 0)) - 1
        super().__init__(self._current())

    @override
    def set_frame(self, frame: int) -> None:
        """The rate at epoch `frame`; a one-cycle policy stays at its end."""
        epoch = frame
        if self._last >= 0:
            epoch = min(frame, self._last)
        with warnings.catch_warnings():  # torch prefers to count epochs itself
            warnings.simplefilter("ignore", UserWarning)
            self._scheduler.step(epoch)
        self.value = self._current()

    def _current(self) -> float:
        return float(self._stand_in.param_groups[0]["lr"])


def build_learning_rate(lr: float, name: str, args: Mapping[str, Any]) -> LearningRate:
    """The schedule of this name in a spec."""
    if name in ("LinearToZero", "LinearToMin"):
        return LinearRate(lr, **args)
    return TorchRate(lr, name, args)


class Loss(Protocol):
    """A scalar to minimise: a tensor, or one whose gradient is written out."""

    def item(self) -> float:
        """The value."""

    def backward(self) -> None:
        """Adds the gradient to the gradients of the parameters."""


class GradientSync:
    """The work of a parallel mode around each step of one optimizer. By default it is
    nothing, as in independent training."""

    def begin(self) -> None:
        """Is called before a training event."""

    def before_step(self, flat: FlatParameters) -> None:
        """Is called after backward, before clipping: `flat.grad` may be replaced in
        place."""

    def operands(self, flat: FlatParameters) -> tuple[Tensor, Tensor]:
        """The vector (P,) that the step changes, and the clipped gradient that it
        takes."""
        return flat.vector, flat.grad

    def after_step(self, flat: FlatParameters) -> None:
        """Is called after the step: `flat.vector` may be replaced in place."""


class StepReport(NamedTuple):
    """The loss and the gradient of one step."""

    loss: float | Tensor
    grad_norm: float | Tensor
    """The global 2-norm before clipping; over both networks if there are two."""


class Optimizer(SavedFields):
    """Gradient descent on one flat vector: backward, exchange, clip, step, exchange.
    It saves the vector and the rule's moments. The learning rate follows from the
    clock."""

    saved: ClassVar = {"flat": "flat", "rule": "_rule"}

    def __init__(
        self,
        flat: FlatParameters,
        rule: UpdateRule,
        learning_rate: LearningRate,
        clip_grad_val: float | None,
        bounds: tuple[float, float] | None = None,
        cuda_graph: bool = False,
    ) -> None:
        self.flat = flat
        self.learning_rate = learning_rate
        self._rule = rule
        self._clip_grad_val = clip_grad_val
        self._bounds = bounds
        self._sync = GradientSync()
        self._norm: float | Tensor = 0.0
        self._rate = torch.tensor(learning_rate.value, device=flat.grad.device)
        self._has_graph = (
            cuda_graph and isinstance(rule, Adam) and not flat.vector.is_cpu
        )
        self.failed: Tensor | None = None
        """The flag of failed steps, which `TrainState` gives to all its optimizers."""

    def join(
        self, sync: GradientSync, state: Mapping[str, Tensor] | None = None
    ) -> None:
        """Steps go through `sync` from now on; `state` is shared state to continue
        with. Raises TypeError for a rule whose state cannot be shared."""
        if state is not None:
            self._rule.bind(state)
        self._sync = sync

    def state_tensors(self) -> list[Tensor]:
        """All that a step changes: parameters, running statistics, and the rule's
        moments."""
        return [self.flat.vector, self.flat.statistics, *self._rule.tensors()]

    def shareable_state(self) -> Mapping[str, Tensor]:
        """The rule's state, tensor by tensor. Raises TypeError where it cannot be
        shared."""
        return self._rule.shareable_state()

    def begin_event(self, frame: int) -> None:
        """Moves learning rate and sync to the trial's clock, before a training
        event."""
        self.learning_rate.set_frame(frame)
        self._sync.begin()
        if self._has_graph:
            self._rate.fill_(self.learning_rate.value)

    @property
    def is_recordable(self) -> bool:
        """Whether a CUDA graph is asked for and can hold a step: only the GPU takes
        part in it."""
        return self._has_graph and type(self._sync) is GradientSync

    def step(self, loss: Loss, skip: Tensor | None = None) -> StepReport:
        """Minimises a scalar loss by one step; returns what `backward` returns and
        raises."""
        report = self.backward(loss)
        self.apply(skip)
        return report

    def backward(self, loss: Loss) -> StepReport:
        """The gradient of a scalar loss, ready to be applied; returns the loss and its
        norm. The norm is the global 2-norm before clipping, as the step would see it in
        every parallel mode. Gradients are exchanged first and clipped after, because
        clipping is not linear. Raises NonFiniteLossError when either is not finite; no
        parameter has changed then. On a GPU it sets `failed` instead."""
        if self.failed is not None:
            assert isinstance(loss, Tensor)
            return self._backward_unread(loss, self.failed)
        loss_value = loss.item()
        is_finite = math.isfinite(loss_value)
        flat = self.flat
        flat.grad.zero_()
        if is_finite:
            loss.backward()
        else:
            flat.grad.fill_(math.nan)  # so that ranks that average it see it
        self._sync.before_step(flat)
        grad = flat.grad.numpy()
        with np.errstate(over="ignore"):  # reported below
            norm = math.sqrt(np.dot(grad, grad))  # a third of the time of torch's norm
        if not is_finite:
            raise NonFiniteLossError(f"the loss is {loss_value}")
        if not math.isfinite(norm):
            raise NonFiniteLossError(
                f"the gradient's norm is {norm} at a loss of {loss_value}"
            )
        self._norm = norm
        return StepReport(loss_value, norm)

    def _backward_unread(self, loss: Tensor, failed: Tensor) -> StepReport:
        """`backward` without reading a number from the GPU."""
        flat = self.flat
        flat.grad.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        loss = loss.detach()
        # NaN, also for ranks that average it, if the loss is not finite
        flat.grad.add_(loss * 0.0)
        self._sync.before_step(flat)
        self._norm = norm = torch.linalg.vector_norm(flat.grad)
        failed.logical_or_(norm.isfinite().logical_not_())
        return StepReport(loss, norm)

    def apply(self, skip: Tensor | None = None) -> None:
        """Clips the gradient that `backward` left and takes the step, within the
        bounds. On a GPU it changes nothing if the scalar `skip` is true."""
        flat = self.flat
        limit = self._clip_grad_val
        norm = self._norm
        if limit is not None and isinstance(norm, Tensor):
            flat.grad.mul_((limit / norm).clamp(max=1.0))
        elif limit is not None and norm > limit:
            flat.grad.mul_(limit / norm)
        vector, grad = self._sync.operands(flat)
        failed = self.failed
        if failed is not None:
            skip = (
                failed if skip is None else torch.maximum(failed, skip.to(failed.dtype))
            )
            skip = skip.to(vector.device)
        rate = self._rate if self.is_recordable else self.learning_rate.value
        self._rule.apply(vector, grad, rate, skip)
        if self._bounds is not None:
            vector.clamp_(*self._bounds)
        self._sync.after_step(flat)

    @override
    @torch.no_grad()
    def load_state_dict(self, state: StateDict) -> None:
        """Restores all of it in place, but for moments that are None: those are saved
        elsewhere. Raises CheckpointError for the moments of another update rule."""
        self.flat.load_state_dict(state["flat"])
        if state["rule"] is not None:
            order = self.flat.layout.order_of(state["flat"]["layout"])
            restore_rule(self._rule, state["rule"], order)


class TrainState(SavedFields):
    """Networks with their optimizers by name, the actor's first; and the target
    networks."""

    merged: ClassVar = ("optimizers",)

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        self.optimizers = dict(optimizers)
        self.flats = {
            name: optimizer.flat for name, optimizer in self.optimizers.items()
        }
        away = [f.vector.device for f in self.flats.values() if not f.vector.is_cpu]
        self.failed = torch.zeros((), device=away[0]) if away else None
        """1.0 on a GPU after a loss or gradient that is not finite: no step changes
        anything then. None elsewhere, because such a step raises at once."""
        for optimizer in self.optimizers.values():
            optimizer.failed = self.failed
        self.targets: tuple[FlatParameters, ...] = ()
        self.group: ProcessGroup = SoloGroup()
        """The ranks whose samples also count in statistics, such as the moments of
        advantages."""

    @property
    def lr(self) -> float:
        """The learning rate of the actor's optimizer now."""
        return next(iter(self.optimizers.values())).learning_rate.value

    def set_frame(self, frame: int) -> None:
        """Moves the learning-rate schedules to the trial's clock, before a training
        event."""
        for optimizer in self.optimizers.values():
            optimizer.begin_event(frame)

    def recording_device(self) -> torch.device | None:
        """The GPU whose CUDA graphs can hold gradient steps; None if they cannot, or
        need not."""
        alone = all(optimizer.is_recordable for optimizer in self.optimizers.values())
        if self.failed is None or not alone or not isinstance(self.group, SoloGroup):
            return None
        return self.failed.device

    def check(self) -> None:
        """Raises NonFiniteLossError if a step on a GPU has failed; waits for the
        GPU."""
        if self.failed is not None and self.failed.item():
            raise NonFiniteLossError("the loss or the gradient of a step is not finite")
