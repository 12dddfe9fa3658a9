"""Written-out gradients against autograd: each piece, and sums of pieces."""

import pytest
import torch
from torch import nn

from slm_lab.agent.algorithm.loss import (
    ValueLoss,
    clipped_surrogate,
    clipped_value_loss,
    entropy_change,
    imitation_value_loss,
)
from slm_lab.agent.autodiff import Node, beside, minimum, parameter
from slm_lab.agent.distribution.distributions import (
    Categorical,
    DiagonalNormal,
    TanhNormal,
)
from slm_lab.agent.distribution.nodes import CategoricalNode, NormalNode, squashed_nodes
from tests.unit.agent.leaf import Leaf

SIZE = 64


def numbers(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_as_autograd(values, loss):
    """`loss` of `values` as a tensor and as a node: its value and its gradient."""
    leaf, tensor = Leaf(values), values.clone().requires_grad_()
    by_node, by_autograd = loss(leaf.node), loss(tensor)
    by_node.backward()
    by_autograd.backward()
    assert by_autograd.item() != 0
    assert tensor.grad.abs().sum() > 0
    torch.testing.assert_close(
        by_node.detach(), by_autograd.detach(), rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(leaf.grad, tensor.grad, rtol=1e-5, atol=1e-7)


WEIGHT = numbers(SIZE, seed=7).abs()
TARGET, OLD = numbers(SIZE, seed=1), numbers(SIZE, seed=2)
SQUARED = ValueLoss(nn.MSELoss, {})
VALUE_LOSSES = {
    "squared": SQUARED,
    "smooth": ValueLoss(nn.SmoothL1Loss, {}),
    "smooth with β": ValueLoss(nn.SmoothL1Loss, {"beta": 0.3}),
    "smooth with a β of zero": ValueLoss(nn.SmoothL1Loss, {"beta": 0.0}),
}


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])
@pytest.mark.parametrize("loss", VALUE_LOSSES.values(), ids=VALUE_LOSSES)
def test_value_losses(loss, weight):
    assert_as_autograd(numbers(SIZE), lambda value: loss(value, TARGET, weight))


@pytest.mark.parametrize("loss", VALUE_LOSSES.values(), ids=VALUE_LOSSES)
def test_value_losses_where_some_errors_are_exactly_zero(loss):
    values = torch.cat([TARGET[:8], numbers(SIZE - 8)])
    assert_as_autograd(values, lambda value: loss(value, TARGET, None))


@pytest.mark.parametrize("loss", VALUE_LOSSES.values(), ids=VALUE_LOSSES)
def test_the_clipped_value_loss(loss):
    """Some values are within the clip, some are beyond it, and there either term is the
    larger."""
    assert_as_autograd(
        numbers(SIZE), lambda value: clipped_value_loss(value, OLD, TARGET, 0.5, loss)
    )


def test_the_clipped_surrogate_loss():
    """Some ratios are clipped, and two are bounded: their logarithms are beyond 20."""
    log_prob = numbers(SIZE, scale=0.3)
    log_prob[:2] = torch.tensor([25.0, -25.0])
    assert_as_autograd(
        log_prob,
        lambda node: clipped_surrogate(node, torch.zeros(SIZE), TARGET, 0.2).loss,
    )


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])
def test_the_imitation_of_values(weight):
    assert_as_autograd(
        numbers(SIZE), lambda value: imitation_value_loss(value, TARGET, weight)
    )


def of_distribution(policy, action):
    """A loss in which log-probabilities and entropies both reach the parameters."""
    return (
        -(policy.log_prob(action) * TARGET).mean()
        - 0.3 * (policy.entropy() * WEIGHT).mean()
    )


def test_the_categorical_distribution():
    action = torch.arange(SIZE) % 5
    kinds = {True: CategoricalNode, False: Categorical}
    assert_as_autograd(
        numbers(SIZE, 5, scale=3.0),
        lambda logits: of_distribution(kinds[isinstance(logits, Node)](logits), action),
    )


def test_the_normal_distribution():
    """Two of log σ are beyond its bounds, where it has no gradient."""
    action, params = numbers(SIZE, 3, seed=3), numbers(SIZE, 6)
    params[0, 3], params[1, 4] = 2.5, -21.0
    action[1, 1] = params[1, 1]

    def loss(params):
        if isinstance(params, Node):
            return of_distribution(NormalNode(params), action)
        return of_distribution(DiagonalNormal(*params.chunk(2, -1)), action)

    assert_as_autograd(params, loss)


def test_the_squashed_normal_distribution():
    """Some actions are at the bounds, where e^|2u| is infinite. Two of log σ are beyond
    theirs."""
    noise, params = numbers(SIZE, 3, seed=3), numbers(SIZE, 6, scale=2.0)
    params[0, 3], params[1, 4], params[2, :3] = (
        2.5,
        -21.0,
        torch.tensor([60.0, -60.0, 9.0]),
    )

    def loss(params):
        if isinstance(params, Node):
            action, log_prob = squashed_nodes(params, noise)
        else:
            action, log_prob = TanhNormal(*params.chunk(2, -1)).with_log_prob(noise)
        return (action * action.detach()).mean() - 0.3 * (log_prob * WEIGHT).mean()

    assert_as_autograd(params, loss)


def test_the_penalty_of_a_change_of_the_entropy():
    assert_as_autograd(numbers(SIZE), lambda entropy: entropy_change(entropy, OLD))


def test_the_smaller_of_two_functions_of_an_input_beside_a_constant():
    """As an actor sees two critics."""
    obs, weights = numbers(SIZE, 2, seed=4), numbers(2, 5, 1, seed=5)

    def loss(x):
        if isinstance(x, Node):
            both = beside(obs.numpy(), x)
            return minimum(
                *(_product(both, w.numpy()).squeeze(-1) for w in weights)
            ).mean()
        both = torch.cat([obs, x], -1)
        return torch.min(*((both @ w).squeeze(-1) for w in weights)).mean()

    assert_as_autograd(numbers(SIZE, 3), loss)


def _product(node, weight):
    return Node(node.array @ weight, (node,), lambda grad: (grad @ weight.T,))


def test_a_tie_counts_as_the_first():
    first, second = Leaf(torch.ones(2)), Leaf(torch.ones(2))
    minimum(first.node, second.node).mean().backward()
    assert first.grad.tolist() == [0.5, 0.5]
    assert second.grad.tolist() == [0.0, 0.0]


def test_summands_may_overwrite_their_gradients():
    leaves = [Leaf(numbers(SIZE, seed=seed)) for seed in range(2)]

    def doubled(grad):
        grad *= 2
        return (grad,)

    first, second = (Node(leaf.node.array, (leaf.node,), doubled) for leaf in leaves)
    (first + second).mean().backward()
    for leaf in leaves:
        torch.testing.assert_close(leaf.grad, torch.full((SIZE,), 2 / SIZE))


def test_gradients_of_a_parameter_add_up():
    for shape in ((), (3,)):
        value = torch.nn.Parameter(torch.full(shape, 2.0))
        value.grad = torch.ones(shape)
        (parameter(value) * 1.5).mean().backward()
        torch.testing.assert_close(
            value.grad, torch.full(shape, 1 + 1.5 / value.numel())
        )


def test_sums_with_constants_and_a_node_that_counts_twice():
    assert_as_autograd(
        numbers(SIZE, 1),
        lambda x: (
            (2.0 * x.squeeze(-1) - TARGET).mean()
            + ((OLD - x.squeeze(-1)) * WEIGHT).mean()
            - (x.squeeze(-1) + OLD).mean()
        ),
    )
