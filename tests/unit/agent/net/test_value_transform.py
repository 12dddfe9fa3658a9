"""Units of the critic."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

from slm_lab.agent.algorithm.ppo import ReturnRange
from slm_lab.agent.net.value_transform import ValueTransform, symexp, symlog
from slm_lab.agent.optim.flat import MOMENTS_WINDOW
from slm_lab.agent.optim.process_group import SoloGroup
from tests.support import randn


@given(st.floats(-1e6, 1e6, width=32))
def test_symexp_undoes_symlog(x):
    value = torch.tensor(x, dtype=torch.float64)
    assert_close(symexp(symlog(value)), value)


@pytest.mark.parametrize("use_symlog", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_decoding_undoes_encoding(use_symlog, normalize):
    transform = ValueTransform(use_symlog, normalize)
    returns = randn(500) * 30 - 100
    transform.update(returns, SoloGroup())
    assert_close(
        transform.decode(transform.encode(returns)), returns, rtol=1e-3, atol=1e-3
    )


def test_targets_of_long_ago_fade_and_new_ones_always_count():
    """After three windows of returns around 500 little is left of those around −1
    500."""
    transform = ValueTransform(False, True)
    rng = torch.Generator().manual_seed(0)
    for centre, batches in ((-1500.0, 4000), (500.0, 12_000)):
        for _ in range(batches):
            transform.update(torch.randn(250, generator=rng) + centre, SoloGroup())
    count = transform.get_buffer("count").item()
    left = math.exp(-3)
    assert count == MOMENTS_WINDOW + 250
    assert transform.get_buffer("mean").item() == pytest.approx(
        500 - 2000 * left, rel=1e-3
    )
    variance = (transform.get_buffer("m2") / count).item()
    assert variance == pytest.approx(1 + 2000**2 * left * (1 - left), rel=1e-3)


def test_encoded_targets_are_standardised():
    transform = ValueTransform(False, True)
    returns = randn(1000) * 50 - 200
    transform.update(returns, SoloGroup())
    encoded = transform.encode(returns)
    assert_close(encoded.mean(), torch.tensor(0.0), atol=1e-4, rtol=0)
    assert_close(encoded.std(), torch.tensor(1.0), atol=1e-2, rtol=0)


def test_without_options_the_transform_does_nothing():
    transform = ValueTransform(False, False)
    returns = torch.tensor([1.0, -3.0])
    transform.update(returns, SoloGroup())
    assert torch.equal(transform.encode(returns), returns)


def test_the_return_range_ignores_outliers_and_never_blows_up_small_returns():
    returns = torch.linspace(0, 20, 101)
    returns[50] = 1e6
    assert ReturnRange().update(returns).item() == pytest.approx(18.0, rel=0.02)
    assert ReturnRange().update(torch.full((10,), 0.1)).item() == 1.0
