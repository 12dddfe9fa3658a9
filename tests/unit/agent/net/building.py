"""Nets from blocks as a spec writes them."""

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.net.layers import Head
from slm_lab.core.registry import NETS
from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from tests.support import seeded


def build(kind, obs_shape, heads=(3, 1), seed=0, **keys):
    """The net `kind` with these keys, initialised from a separate generator."""
    spec = NETS.get(kind).params.model_validate({"type": kind, **keys})
    generator = seeded(seed)
    return build_net(spec, obs_shape, [Head(dim) for dim in heads], generator)


def arc(*layers):
    """An arc of layers, each a name or (name, arguments)."""
    rows = [{row: None} if isinstance(row, str) else {row[0]: row[1]} for row in layers]
    return {"modules": {"body": {"Sequential": rows}}}


def images(shape, size=8, seed=5) -> Tensor:
    generator = seeded(seed)
    return torch.randint(0, 256, (size, *shape), dtype=torch.uint8, generator=generator)


def copy_parameters(source: nn.Module, target: nn.Module) -> None:
    """In the order of both."""
    pairs = zip(source.parameters(), target.parameters(), strict=True)
    with torch.no_grad():
        for one, other in pairs:
            other.copy_(one)


def assert_same_function(net, twin, obs, twin_obs) -> None:
    """Outputs, and the gradients of every parameter, of two nets with parameters in one
    order."""
    outputs = net(obs)
    expected = twin(twin_obs)
    assert_close(outputs, expected, rtol=1e-4, atol=1e-5)
    weights = [torch.linspace(-1, 2, out.numel()).view_as(out) for out in outputs]
    for outs in (outputs, expected):
        sum(
            (out * weight).sum() for out, weight in zip(outs, weights, strict=True)
        ).backward()
    for left, right in zip(net.parameters(), twin.parameters(), strict=True):
        assert right.grad.abs().max() > 0
        assert_close(left.grad, right.grad, rtol=1e-3, atol=1e-4)


class TwoHeads(nn.Module):
    """The usual module: a body, and two linear layers on it."""

    def __init__(self, body: nn.Module, width: int, dims=(3, 1)) -> None:
        super().__init__()
        self.body = body
        self.heads = nn.ModuleList([nn.Linear(width, dim) for dim in dims])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features = self.body(x)
        return tuple(head(features) for head in self.heads)
