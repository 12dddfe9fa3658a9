"""The flat vector: views stay views, and breaks are found."""

import copy
import itertools

import pytest
import torch
from torch import nn

from slm_lab.agent.optim.build import build_rule
from slm_lab.agent.optim.flat import FlatParameters, rearranged
from slm_lab.agent.optim.lr_schedule import LearningRate
from slm_lab.agent.optim.optimizer import Optimizer
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


class WithCell(nn.Module):
    """Recurrent layers between others, after a parameter of its own."""

    def __init__(self, cell: nn.RNNBase) -> None:
        super().__init__()
        self.body = nn.Linear(3, 5)
        self.cell = cell
        self.tail = nn.Linear(cell.hidden_size, 2)
        self.scale = nn.Parameter(torch.arange(3.0))


CELLS = {
    f"{kind.__name__}{layers}{'_both_ways' * both}": (kind, layers, both)
    for kind in (nn.GRU, nn.LSTM, nn.RNN)
    for layers in (1, 2)
    for both in (False, True)
}


def with_cell(kind, layers, both, seed=0):
    torch.manual_seed(seed)
    return WithCell(kind(5, 7, layers, bidirectional=both))


def assert_lies_as_cudnn_takes_it(cell):
    """From the start of the storage, the weights of all layers, then all biases, without gaps."""
    named = list(cell.named_parameters())
    place = cell.weight_ih_l0.untyped_storage().data_ptr()
    for kind in ("weight", "bias"):
        for name, parameter in named:
            if name.startswith(kind):
                assert parameter.data_ptr() == place, name
                assert parameter.is_contiguous()
                place += parameter.nbytes


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_recurrent_weights_lie_as_cudnn_takes_them(cell):
    """Also after sharing, rebinding and loading; and the gradients are those of the network."""
    net, plain = with_cell(*cell), with_cell(*cell)
    flat = FlatParameters(net)
    for ours, wanted in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, wanted)
    assert_lies_as_cudnn_takes_it(net.cell)
    flat.rebind(flat.vector.clone().share_memory_(), flat.statistics.clone().share_memory_())
    assert_lies_as_cudnn_takes_it(net.cell)
    flat.load_state_dict(flat.state_dict())
    assert_lies_as_cudnn_takes_it(net.cell)
    x = torch.randn(4, 6, 5)
    for each in (net, plain):
        each.cell(x)[0].square().sum().backward()
    for ours, wanted in zip(net.cell.parameters(), plain.cell.parameters(), strict=True):
        assert torch.equal(ours.grad, wanted.grad)
    flat.check()


@pytest.mark.parametrize("rule", ["Adam", "RMSprop", "SGD"])
def test_a_network_saved_in_the_order_of_its_modules_is_loaded_with_its_moments(rule):
    """As older versions saved recurrent nets."""

    def trained(net):
        flat = FlatParameters(net)
        arguments = {"momentum": 0.9} if rule == "SGD" else {}
        optimizer = Optimizer(flat, build_rule(rule, arguments, flat), LearningRate(0.1), None)
        return optimizer, lambda: optimizer.step(sum(p.square().sum() for p in net.parameters()))

    def by_module(state, names):
        """The state with vectors in the order in which the module lists its parameters."""
        sizes = {name: torch.Size(shape).numel() for name, shape in state["flat"]["layout"]}
        ends = dict(zip(sizes, itertools.accumulate(sizes.values()), strict=True))
        place = {name: torch.arange(ends[name] - size, ends[name]) for name, size in sizes.items()}
        shapes = dict(state["flat"]["layout"])
        moved = rearranged(state, torch.cat([place[name] for name in names]))
        return moved | {"flat": moved["flat"] | {"layout": [[n, shapes[n]] for n in names]}}

    net, again = with_cell(nn.LSTM, 2, False), with_cell(nn.LSTM, 2, False, seed=1)
    optimizer, step = trained(net)
    step()
    saved = by_module(optimizer.state_dict(), [name for name, _ in net.named_parameters()])
    other, step_again = trained(again)
    step_again()
    other.load_state_dict(saved)
    for take in (step, step_again):
        take()
    for ours, wanted in zip(again.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted)
