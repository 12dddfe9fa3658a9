"""Batch renormalisation, against batch normalisation and its formula."""

import torch
from torch.testing import assert_close

from slm_lab.agent.net.layers import BatchRenorm
from tests.support import randn


def test_batch_renorm_is_batch_norm_while_it_warms_up():
    ours = BatchRenorm(5)
    theirs = torch.nn.BatchNorm1d(5, eps=1e-3, momentum=0.01)
    x = randn(64, 5) * 3 + 1
    assert_close(ours(x), theirs(x))
    assert_close(ours.running_mean, theirs.running_mean)
    ours.eval()
    theirs.eval()
    theirs.running_var.copy_(ours.running_var)  # torch keeps the unbiased variance
    assert_close(ours(x), theirs(x))


def test_batch_renorm_normalises_with_the_running_moments_once_it_is_warm():
    """Where nothing is clipped, x̂ = (x − μ)/σ, although the gradient is that of the
    batch."""
    layer = BatchRenorm(3, warmup_steps=0)
    mean = torch.tensor([0.5, -0.5, 0.0])
    var = torch.tensor([2.0, 1.0, 0.5])
    layer.running_mean.copy_(mean)
    layer.running_var.copy_(var)
    x = randn(256, 3)
    assert_close(layer(x), (x - mean) / (var + 1e-3).sqrt(), rtol=1e-4, atol=1e-5)


def test_batch_renorm_corrects_no_further_than_its_bounds():
    layer = BatchRenorm(1, warmup_steps=0)
    x = randn(256, 1) * 100 + 1000
    plain = (x - x.mean()) / (x.var(correction=0) + 1e-3).sqrt()
    assert_close(layer(x), plain * 3 + 5, rtol=1e-3, atol=1e-4)
