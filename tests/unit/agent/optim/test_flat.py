"""The flat vector: views stay views, and breaks are found."""

import copy

import pytest
import torch
from torch import nn

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import CheckpointError


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))


def test_flattening_changes_no_value():
    net = network()
    before = copy.deepcopy(net.state_dict())
    flat = FlatParameters(net)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(flat.vector, torch.cat([p.reshape(-1) for p in net.parameters()]))


def test_writing_the_vector_writes_the_network_and_back():
    net = network()
    flat = FlatParameters(net)
    flat.vector.fill_(0.5)
    assert all((p == 0.5).all() for p in net.parameters())
    with torch.no_grad():
        net[0].weight.fill_(2.0)
    assert (flat.vector[:12] == 2.0).all()


def test_backward_accumulates_into_the_flat_gradient():
    net = network()
    flat = FlatParameters(net)
    net(torch.randn(5, 3)).sum().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    assert flat.grad.abs().sum() > 0
    assert torch.equal(flat.grad, expected)
    flat.check()


def test_running_statistics_live_in_the_statistics_vector():
    net = network()
    flat = FlatParameters(net)
    before = flat.statistics.clone()
    net(torch.randn(5, 3) + 3)
    assert not torch.equal(flat.statistics, before)
    flat.check()


def test_rebinding_moves_the_network_onto_other_storage():
    net = network()
    flat = FlatParameters(net)
    vector = torch.zeros_like(flat.vector).share_memory_()
    statistics = torch.ones_like(flat.statistics).share_memory_()
    flat.rebind(vector, statistics)
    flat.check()
    assert all((p == 0).all() and p.is_shared() for p in net.parameters())
    assert (net[1].running_mean == 1).all()
    net(torch.randn(5, 3)).sum().backward()
    assert flat.grad.abs().sum() > 0


def test_rebinding_to_another_size_is_refused():
    flat = FlatParameters(network())
    with pytest.raises(ValueError, match="cannot bind"):
        flat.rebind(torch.zeros(3), flat.statistics)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda net: net.zero_grad(set_to_none=True),
        lambda net: setattr(net[0].weight, "data", net[0].weight.data.clone()),
        lambda net: net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True),
        lambda net: setattr(net[1], "running_mean", torch.zeros(4)),
    ],
    ids=["set_to_none", "data", "assign", "buffer"],
)
def test_check_finds_a_broken_view(break_it):
    net = network()
    flat = FlatParameters(net)
    flat.check()
    break_it(net)
    with pytest.raises(RuntimeError, match="has left the flat"):
        FlatParameters.check(flat)


def test_state_round_trip_is_exact_and_in_place():
    flat, other = FlatParameters(network(0)), FlatParameters(network(1))
    where = other.vector.data_ptr()
    other.load_state_dict(flat.state_dict())
    assert torch.equal(other.vector, flat.vector)
    assert other.vector.data_ptr() == where
    other.check()


def test_a_buffer_may_change_after_the_forward_pass_of_another():
    """As singular vectors do that follow a batch normalisation."""
    net = network()
    net[3].register_buffer("direction", torch.ones(2))
    flat = FlatParameters(net)
    out = net(torch.randn(5, 3))
    net[3].direction.mul_(2)
    out.sum().backward()
    assert flat.grad.isfinite().all()
    flat.check()


def test_a_state_of_another_architecture_is_refused():
    flat = FlatParameters(network())
    other = FlatParameters(nn.Linear(3, 4))
    with pytest.raises(CheckpointError, match="the spec now builds"):
        flat.load_state_dict(other.state_dict())


def test_other_dtypes_are_refused():
    with pytest.raises(TypeError, match="float32"):
        FlatParameters(nn.Linear(2, 2, dtype=torch.float64))
