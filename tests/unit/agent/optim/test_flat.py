"""The flat vector: views stay views, and breaks are found."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from slm_lab.agent.optim import flat as flat_module
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import LearningRate, Optimizer
from slm_lab.agent.optim.rule import build_rule
from slm_lab.core.errors import CheckpointError
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.parallel.hogwild.sync import InPlaceSync, SharedTrainState
from tests.support import needs


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))


def test_flattening_changes_no_value():
    net = network()
    before = copy.deepcopy(net.state_dict())
    flat = FlatParameters(net)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(
        flat.vector, torch.cat([p.reshape(-1) for p in net.parameters()])
    )


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
    """From the start of the storage, the weights of all layers, then all biases,
    without gaps."""
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
    """Also after sharing, rebinding and loading; and the gradients are those of the
    network."""
    net = with_cell(*cell)
    plain = with_cell(*cell)
    flat = FlatParameters(net)
    for ours, wanted in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, wanted)
    assert_lies_as_cudnn_takes_it(net.cell)
    flat.rebind(
        flat.vector.clone().share_memory_(), flat.statistics.clone().share_memory_()
    )
    assert_lies_as_cudnn_takes_it(net.cell)
    flat.load_state_dict(flat.state_dict())
    assert_lies_as_cudnn_takes_it(net.cell)
    x = torch.randn(4, 6, 5)
    for each in (net, plain):
        each.cell(x)[0].square().sum().backward()
    for ours, wanted in zip(
        net.cell.parameters(), plain.cell.parameters(), strict=True
    ):
        assert torch.equal(ours.grad, wanted.grad)
    flat.check()


@pytest.fixture
def older(monkeypatch):
    """Calls a function as older versions were: recurrent layers lie among the
    others."""

    def call(make):
        with monkeypatch.context() as patch:
            patch.setattr(
                flat_module, "_listed", lambda module: list(module.named_parameters())
            )
            return make()

    return call


ARGUMENTS = {
    "SGD": {"momentum": 0.9},
    "Lookahead": {"optimizer": {"name": "Adafactor"}, "k": 2, "alpha": 0.5},
}


def trained(seed, rule="Adam"):
    """A network with its optimizer after one step."""
    net = with_cell(nn.LSTM, 2, False, seed)
    flat = FlatParameters(net)
    built = build_rule(rule, ARGUMENTS.get(rule, {}), flat)
    optimizer = Optimizer(flat, built, LearningRate(0.1), None)
    step(net, optimizer)
    return net, optimizer


def step(net, optimizer):
    optimizer.step(sum((p - 0.1).square().sum() for p in net.parameters()))


def assert_equal(net, other):
    for ours, wanted in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted)


@pytest.mark.parametrize(
    "rule",
    [
        *("Adam", "RMSprop", "SGD", "Adagrad"),
        *(
            pytest.param(rule, marks=needs("torch", "2.5"))
            for rule in ("Adafactor", "Lookahead")
        ),
    ],
)
def test_a_network_saved_in_the_order_of_its_modules_is_loaded_with_its_moments(
    older, rule
):
    net, optimizer = older(lambda: trained(0, rule))
    again, other = trained(1, rule)
    assert other.flat.layout.names != optimizer.flat.layout.names
    other.load_state_dict(optimizer.state_dict())
    assert_equal(again, net)
    step(net, optimizer)
    step(again, other)
    assert_equal(again, net)


@pytest.mark.parametrize("recorded", [True, False])
def test_shared_weights_of_older_versions_are_loaded_with_their_moments(
    older, recorded
):
    """Hogwild! did not record the order of the weights that it saved for late
    workers."""
    net, optimizer = older(lambda: trained(0))
    saved = SharedTrainState.of(optimizer, 1).state_dict()
    if not recorded:
        del saved["flat"]["layout"]
    again, other = trained(1)
    shared = SharedTrainState.of(other, 1)
    shared.load(saved)
    InPlaceSync(shared, 0).join(other)
    assert_equal(again, net)
    step(net, optimizer)
    step(again, other)
    assert_equal(again, net)


def test_published_weights_of_older_versions_are_taken_as_they_were(older):
    def published():
        nets = {
            "actor": with_cell(nn.GRU, 1, False),
            "critic": with_cell(nn.LSTM, 1, False, 1),
        }
        flats = {name: FlatParameters(net) for name, net in nets.items()}
        store = WeightStore.of(flats, 2)
        store.publish(flats, np.array([1.0, 2.0]), 3)
        return (
            nets,
            store.state_dict(),
            {n: f.state_dict()["layout"] for n, f in flats.items()},
        )

    nets, saved, layouts = older(published)
    again = {
        "actor": with_cell(nn.GRU, 1, False, 2),
        "critic": with_cell(nn.LSTM, 1, False, 3),
    }
    flats = {name: FlatParameters(net) for name, net in again.items()}
    store = WeightStore.of(flats, 2)
    store.load_state_dict(saved)
    store.rearrange(flats, layouts)
    store.take(flats, np.zeros(2))
    for name, net in nets.items():
        assert_equal(again[name], net)
