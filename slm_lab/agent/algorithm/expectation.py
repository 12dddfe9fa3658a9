"""Expectations of an action-value function under a policy: E[Q] and the entropy, in
several ways.

With a temperature α, E[Q(s, a) − α log π(a|s)] is the soft value. Critics bootstrap
from the next state's; the actor maximises this state's. A deterministic policy has no
entropy."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from slm_lab.agent.distribution.distributions import TanhNormal

ActionValue: TypeAlias = Callable[[Tensor | None], Tensor]
"""Maps actions (B, A) to their values (B,); for discrete actions None to all values (B,
n)."""


class Expectation(NamedTuple):
    """Expectations over the actions of a policy in each state."""

    value: Tensor
    """(B,) E[Q(s, a)]"""
    entropy: Tensor
    """(B,) E[−log π(a|s)]"""


def squashed(params: Tensor, q: ActionValue, noise: Tensor) -> Expectation:
    """Estimates it by one reparametrised action, tanh(μ + σε): eqs. 11 and 20 of
    arXiv:1812.05905. The noise is standard normal."""
    action, log_prob = TanhNormal(*params.chunk(2, -1)).with_log_prob(noise)
    return Expectation(q(action), -log_prob)


def exact(params: Tensor, q: ActionValue, noise: Tensor) -> Expectation:
    """Σ_a π(a|s) Q(s, a) over n actions: eqs. 10 and 12 of arXiv:1910.07207."""
    log_p = params.log_softmax(-1)
    p = log_p.exp()
    return Expectation((p * q(None)).sum(-1), -(p * log_p).sum(-1))


def gumbel_softmax(params: Tensor, q: ActionValue, noise: Tensor) -> Expectation:
    """Estimates it by one action with the gradient of a softmax: straight-through,
    arXiv:1611.01144. The noise is exponential; −log of it is Gumbel."""
    log_p = params.log_softmax(-1)
    relaxed = (log_p - noise.log()).softmax(-1)
    hard = one_hot(relaxed.argmax(-1), log_p.shape[-1]).to(relaxed.dtype)
    action = hard - relaxed.detach() + relaxed
    return Expectation((action * q(None)).sum(-1), -(action * log_p).sum(-1))


def deterministic(params: Tensor, q: ActionValue, noise: Tensor) -> Expectation:
    """Takes the one action, tanh(params), plus noise within the bounds: eq. 14 of
    arXiv:1802.09477. The noise has the scale of actions, or is empty."""
    action = params.tanh()
    if noise.numel():
        action = (action + noise).clamp(-1.0, 1.0)
    value = q(action)
    return Expectation(value, torch.zeros_like(value))


class PolicyExpectation(NamedTuple):
    """A way to take the expectation, and the noise that it needs."""

    of: Callable[[Tensor, ActionValue, Tensor], Expectation]
    """Maps parameters (B, param_dim), an action-value function and the noise of `draw`
    to its expectation, with gradients to the parameters."""
    draw: Callable[[tuple[int, int], torch.Generator], Tensor]
    """Noise of this shape, on the CPU; empty where the expectation is exact."""


SQUASHED = PolicyExpectation(
    squashed, lambda shape, generator: torch.randn(shape, generator=generator)
)
EXACT = PolicyExpectation(exact, lambda shape, generator: torch.empty(0))
GUMBEL_SOFTMAX = PolicyExpectation(
    gumbel_softmax,
    lambda shape, generator: torch.empty(shape).exponential_(generator=generator),
)


def smoothed(std: float, largest: float) -> PolicyExpectation:
    """A deterministic policy with clipped normal noise on its actions: target policy
    smoothing, section 5.3 of arXiv:1802.09477."""

    def draw(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        noise = torch.randn(shape, generator=generator)
        return (std * noise).clamp_(-largest, largest)

    return PolicyExpectation(deterministic, draw)


DETERMINISTIC = PolicyExpectation(
    deterministic, lambda shape, generator: torch.empty(0)
)
