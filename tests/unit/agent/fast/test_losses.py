"""Each written-out loss against autograd."""

import numpy as np
import pytest
import torch
from torch import nn

from slm_lab.agent.algorithm import loss
from slm_lab.agent.algorithm.loss import ValueLoss
from slm_lab.agent.fast import losses
from slm_lab.agent.fast.losses import elementwise
from slm_lab.agent.fast.objectives import ONE
from slm_lab.agent.net.return_distribution import quantile_loss
from tests.unit.agent.fast.gradient import assert_gradient, by_autograd, numbers

SIZE = 64
WEIGHT = numbers(SIZE, seed=7).abs()
TARGET = numbers(SIZE, seed=1)
OLD = numbers(SIZE, seed=2)
VALUE_LOSSES = {
    "squared": ValueLoss(nn.MSELoss, {}),
    "smooth": ValueLoss(nn.SmoothL1Loss, {}),
    "smooth with β": ValueLoss(nn.SmoothL1Loss, {"beta": 0.3}),
    "smooth with a β of zero": ValueLoss(nn.SmoothL1Loss, {"beta": 0.0}),
}
OF_VALUES = pytest.mark.parametrize("kind", VALUE_LOSSES.values(), ids=VALUE_LOSSES)
WEIGHTS = pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])


def assert_as_autograd(written, in_torch, values=None):
    """The value of a term, and its gradient times 0.7."""
    values = numbers(SIZE) if values is None else values
    value, grad = by_autograd(in_torch, values)
    term = written(values.numpy())
    assert float(term.value) == pytest.approx(value, rel=1e-5)
    assert_gradient(term.backward(ONE * 0.7), grad * 0.7)


@WEIGHTS
@OF_VALUES
def test_value_losses(kind, weight):
    assert_as_autograd(
        lambda value: losses.value_loss(elementwise(kind), value, TARGET, weight),
        lambda value: kind(value, TARGET, weight),
    )


@OF_VALUES
def test_value_losses_where_some_errors_are_exactly_zero(kind):
    assert_as_autograd(
        lambda value: losses.value_loss(elementwise(kind), value, TARGET),
        lambda value: kind(value, TARGET),
        torch.cat([TARGET[:8], numbers(SIZE - 8)]),
    )


@pytest.mark.parametrize("kappa", [0.0, 0.4, 1.0])
def test_the_loss_of_quantiles(kappa):
    """There are fewer quantiles than samples. Some errors are zero, some exactly κ."""
    quantiles = numbers(SIZE, 5)
    target = numbers(SIZE, 7, seed=1)
    quantiles[:8, :2] = target[:8, :2]
    quantiles[8:16, 0] = target[8:16, 0] + kappa
    levels = (torch.arange(5) + 0.5) / 5

    def in_torch(values):
        return quantile_loss(values, levels, target, kappa)

    _, gradient = by_autograd(lambda values: in_torch(values).sum(), quantiles)
    found, slope = losses.quantile_loss(
        quantiles.numpy(), levels.numpy(), target.numpy(), kappa
    )
    torch.testing.assert_close(torch.from_numpy(found), in_torch(quantiles))
    torch.testing.assert_close(torch.from_numpy(slope), gradient, rtol=1e-5, atol=1e-6)


def test_the_loss_of_two_quantiles_of_one_sample():
    """Levels ¼ and ¾, errors 3 and −½: ¾ (3 − ½) + ¾ (½ · ¼) and its derivatives."""
    found, slope = losses.quantile_loss(
        quantiles=np.array([[4.0, 0.5]], np.float32),
        levels=np.array([0.25, 0.75], np.float32),
        target=np.array([[1.0]], np.float32),
        kappa=1.0,
    )
    assert found.tolist() == [0.75 * 2.5 + 0.75 * 0.125]
    assert slope.tolist() == [[0.75, -0.75 * 0.5]]


def test_other_losses_of_torch_are_not_written_out():
    assert elementwise(ValueLoss(nn.L1Loss, {})) is None


@OF_VALUES
def test_the_clipped_value_loss(kind):
    """Some values are within the clip, some are beyond it, and there either term is the
    larger."""
    assert_as_autograd(
        lambda value: losses.clipped_value_loss(
            elementwise(kind), value, OLD, TARGET, 0.5
        ),
        lambda value: loss.clipped_value_loss(value, OLD, TARGET, 0.5, kind),
    )


def test_the_clipped_surrogate_loss_and_the_change_of_the_policy():
    """Some ratios are clipped, and two are bounded: their logarithms are beyond 20."""
    log_prob = numbers(SIZE, scale=0.3)
    old = torch.zeros(SIZE)
    log_prob[:2] = torch.tensor([25.0, -25.0])
    assert_as_autograd(
        lambda log_prob: losses.clipped_surrogate(
            log_prob, old.numpy(), TARGET.numpy(), 0.2
        )[0],
        lambda log_prob: loss.clipped_surrogate(log_prob, old, TARGET, 0.2).loss,
        log_prob,
    )
    _, log_ratio = losses.clipped_surrogate(
        log_prob.numpy(), old.numpy(), TARGET.numpy(), 0.2
    )
    surrogate = loss.clipped_surrogate(log_prob, old, TARGET, 0.2)
    assert losses.policy_change(log_ratio, 0.2) == pytest.approx(
        (surrogate.kl, surrogate.clip_fraction), rel=1e-5
    )


@WEIGHTS
def test_the_policy_gradient(weight):
    assert_as_autograd(
        lambda log_prob: losses.policy_gradient(log_prob, TARGET, weight),
        lambda log_prob: loss.policy_gradient_loss(log_prob, TARGET, weight),
    )


@WEIGHTS
def test_the_imitation_of_values(weight):
    assert_as_autograd(
        lambda value: losses.imitation_value_loss(value, TARGET, weight),
        lambda value: loss.imitation_value_loss(value, TARGET, weight),
    )


def test_the_penalty_of_a_change_of_the_entropy():
    assert_as_autograd(
        lambda entropy: losses.entropy_change(entropy, OLD),
        lambda entropy: loss.entropy_change(entropy, OLD),
    )
