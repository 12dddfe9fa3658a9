"""Builds an Optimizer from the optimizer block of a net spec."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.lr_schedule import build_learning_rate
from slm_lab.agent.optim.optimizer import Optimizer
from slm_lab.agent.optim.rule import Adam, RMSprop, TorchRule, UpdateRule
from slm_lab.core.errors import LabError
from slm_lab.spec.schema.net import NetSpec

IMPLEMENTATION_ARGS = ("foreach", "fused")
"""Arguments of torch optimizers that choose an implementation and change no formula."""


def build_optimizer(
    spec: NetSpec, flat: FlatParameters, bounds: tuple[float, float] | None = None
) -> Optimizer:
    """The optimizer of a net spec that is resolved for one role. `bounds` limit every
    parameter."""
    args = dict(spec.optim_spec.args)
    lr = float(args.pop("lr"))
    if (schedule := spec.lr_scheduler_spec) is None:
        learning_rate = build_learning_rate(lr, None, {})
    else:
        with torch_errors_at("agent.net.lr_scheduler_spec", schedule.name):
            learning_rate = build_learning_rate(lr, schedule.name, schedule.args)
    with torch_errors_at("agent.net.optim_spec", spec.optim_spec.name):
        rule = build_rule(spec.optim_spec.name, args, flat)
    # which waits for lengths of sequences
    graph = spec.cuda_graph and spec.type != "RecurrentNet"
    return Optimizer(flat, rule, learning_rate, spec.clip_grad_val, bounds, graph)


@contextmanager
def torch_errors_at(path: str, name: str) -> Iterator[None]:
    """Raises LabError with the place in the spec of arguments that a class of torch
    refuses."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        raise LabError(
            f"{path}: torch refuses these arguments of {name}: {error}"
        ) from error


def build_rule(name: str, args: Mapping[str, Any], flat: FlatParameters) -> UpdateRule:
    """The update rule `name` of a spec, with its arguments except the learning rate."""
    if name in ("Adam", "GlobalAdam", "AdamW", "RMSprop", "GlobalRMSprop"):
        own = {k: v for k, v in args.items() if k not in IMPLEMENTATION_ARGS}
        if name in ("RMSprop", "GlobalRMSprop"):
            return RMSprop(flat, **own)
        if name == "AdamW":
            return Adam(flat, **{"weight_decay": 1e-2, **own}, decoupled=True)
        decoupled = bool(own.pop("decoupled_weight_decay", False))
        return Adam(flat, **own, decoupled=decoupled)
    return TorchRule(flat, getattr(torch.optim, name), **args)
