"""What every net does, whatever its heads are for."""

import numpy as np
import pytest
import torch
from torch import nn

from slm_lab.agent.fast.networks import array_net
from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.net.layers import BatchRenorm, Head
from slm_lab.agent.net.policy_value import host_forward
from slm_lab.core.registry import NETS
from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from tests.contract.parts_table import NET_ROWS
from tests.contract.runs import global_generators, poison_global_generators
from tests.contract.table import cases

NORMALISING = (nn.BatchNorm1d, nn.BatchNorm2d, BatchRenorm)
ALL = pytest.mark.parametrize("case", cases(NET_ROWS))


def build(case, seed=0, gains=None):
    """The net of a row, in the mode for acting."""
    name, variant = case
    row = NET_ROWS[name][variant]
    spec = NETS.get(name).params.model_validate({"type": name, **row.block})
    gains = gains or [None] * len(row.heads)
    heads = list(map(Head, row.heads, gains))
    net = build_net(spec, row.obs_shape, heads, torch.Generator().manual_seed(seed))
    net.train(False)
    return net


def observations(case, size, seed=17):  # not that of the weights
    name, variant = case
    row = NET_ROWS[name][variant]
    *lead, last = row.obs_shape
    shape = (size, *lead, last + row.state_around)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def widths(case):
    name, variant = case
    return NET_ROWS[name][variant].heads


def state(net):
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


@ALL
@pytest.mark.parametrize("size", [1, 5])
def test_there_is_one_output_per_head_with_its_width(case, size):
    outputs = build(case)(observations(case, size))
    assert [tuple(out.shape) for out in outputs] == [
        (size, width) for width in widths(case)
    ]
    assert all(out.dtype == torch.float32 and out.isfinite().all() for out in outputs)


@ALL
@pytest.mark.parametrize("size", [1, 5])
def test_an_actor_sees_the_same_outputs(case, size):
    net, obs = build(case), observations(case, size)
    ways = [host_forward(net, torch.device("cpu"))]
    if (arrays := array_net(net)) is not None:
        ways.append(arrays.forward)
    for forward in ways:
        acted = forward(obs.numpy())[: len(widths(case))]
        for left, right in zip(acted, net(obs), strict=True):
            np.testing.assert_allclose(
                left, right.detach().numpy(), rtol=1e-4, atol=1e-5
            )


@ALL
def test_it_is_initialised_by_the_given_generator_alone(case):
    poison_global_generators(0)
    before = global_generators()
    first = state(build(case))
    assert global_generators() == before
    poison_global_generators(1)
    again, other = state(build(case)), state(build(case, seed=1))
    assert first.keys() == again.keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())
    assert any(not torch.equal(tensor, other[name]) for name, tensor in first.items())


@ALL
def test_the_gain_of_a_head_is_the_scale_of_its_output(case):
    obs = observations(case, 5)
    gains = [0.01, 3.0][: len(widths(case))]
    of_one = build(case, gains=[1.0] * len(gains))(obs)
    for gain, scaled, plain in zip(
        gains, build(case, gains=gains)(obs), of_one, strict=True
    ):
        assert plain.abs().max() > 0
        torch.testing.assert_close(scaled, gain * plain)


@ALL
def test_gradients_reach_every_parameter_from_its_heads_together(case):
    net = build(case)
    outputs = net(observations(case, 32))
    sum(out.square().mean() for out in outputs).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.count_nonzero() > 0, name


@ALL
def test_gradients_are_those_of_the_function(case):
    """By central differences along a random direction, in double precision."""
    net, obs = build(case).double(), observations(case, 16).double()
    parameters = list(net.parameters())

    def loss():
        return sum((out * (i + 1)).sin().mean() for i, out in enumerate(net(obs)))

    generator = torch.Generator().manual_seed(3)
    direction = [
        torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters
    ]
    grads = torch.autograd.grad(loss(), parameters)
    slope = sum((g * d).sum() for g, d in zip(grads, direction, strict=True))
    here, along = (
        nn.utils.parameters_to_vector(each) for each in (parameters, direction)
    )
    values, width = [], 1e-6
    for sign in (1, -1):
        with torch.no_grad():
            nn.utils.vector_to_parameters(here + sign * width * along, parameters)
            values.append(loss())
    difference = (values[0] - values[1]) / (2 * width)
    torch.testing.assert_close(slope, difference, rtol=1e-4, atol=1e-7)


@ALL
def test_when_acting_each_observation_is_answered_by_itself_and_nothing_changes(case):
    net, obs = build(case), observations(case, 5)
    before = state(net)
    together = net(obs)
    for index in range(5):
        for out, alone in zip(together, net(obs[index : index + 1]), strict=True):
            torch.testing.assert_close(out[index : index + 1], alone)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(net).items())


@ALL
def test_only_batch_normalisation_looks_at_the_mode(case):
    net, obs = build(case), observations(case, 16)
    acting, before = net(obs), state(net)
    net.train(True)
    learning = net(obs)
    changed = any(
        not torch.equal(tensor, before[name]) for name, tensor in state(net).items()
    )
    same = all(
        torch.equal(one, other) for one, other in zip(acting, learning, strict=True)
    )
    normalises = any(isinstance(m, NORMALISING) for m in net.modules())
    assert (changed, not same) == (normalises, normalises)
    net.train(False)
    before = state(net)
    net(obs)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(net).items())


@ALL
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("size", [1, 7])
def test_it_puts_out_the_same_with_and_without_gradients(case, context, size):
    net, obs = build(case), observations(case, size)
    with_gradients = net(obs)
    with context():
        without = net(obs)
    for one, other in zip(with_gradients, without, strict=True):
        assert one.requires_grad
        assert not other.requires_grad
        # NumPy, or torch's kernels for inference alone
        torch.testing.assert_close(one, other)


@ALL
def test_it_leaves_the_observations_as_they_are(case):
    net, obs = build(case), observations(case, 5)
    before = obs.clone()
    for mode in (True, False):
        net.train(mode)
        sum(out.mean() for out in net(obs)).backward()
    assert torch.equal(obs, before)
