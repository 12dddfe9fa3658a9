"""Steps on parameters that several workers share, taken in turn in this process."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from slm_lab.agent.net.layers import BatchRenorm, EmptyLinear, init_linear
from slm_lab.agent.net.q_network import normalise_spectrum
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import LearningRate, Optimizer
from slm_lab.agent.optim.process_group import SoloGroup
from slm_lab.agent.optim.rule import build_rule
from slm_lab.core.errors import LabError, NonFiniteLossError
from slm_lab.parallel.hogwild.sync import CopySync, InPlaceSync, SharedTrainState
from tests.support import randn, seeded

RULES = ["GlobalAdam", "GlobalRMSprop", "Lookahead"]
BOTH = pytest.mark.parametrize("kind", [InPlaceSync, CopySync])


def network(seed=0):
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    generator = seeded(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(generator=generator)
    return net


LOOKAHEAD = {"optimizer": {"name": "GlobalAdam"}, "k": 3, "alpha": 0.5}


def optimizer_of(net, rule="GlobalAdam", clip=None):
    flat = FlatParameters(net)
    args = LOOKAHEAD if rule == "Lookahead" else {}
    return Optimizer(flat, build_rule(rule, args, flat), LearningRate(1e-2), clip)


def batch(seed):
    return randn(16, 3, seed=100 + seed)


def loss(net, seed):
    return net(batch(seed)).square().mean()


class Worker:
    """A worker with its own network, which has joined."""

    def __init__(self, train_state, kind, index, rule="GlobalAdam", clip=None):
        self.net = network(seed=50 + index)  # it is replaced by the shared one
        self.optimizer = optimizer_of(self.net, rule, clip)
        self.sync = kind(train_state, index)
        self.sync.join(self.optimizer)

    def step(self, seed):
        self.optimizer.step(loss(self.net, seed))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("clip", [None, 0.5])
def test_synced_workers_in_turn_are_plain_updates_on_the_weights_that_each_had_pulled(
    rule, clip
):
    """By hand: worker 1's first gradient is of the weights before worker 0's step."""
    train_state = SharedTrainState.of(optimizer_of(network(), rule), 2)
    workers = [Worker(train_state, CopySync, index, rule, clip) for index in range(2)]
    pulled = [network(), network()]
    plain_net = network()
    plain = optimizer_of(plain_net, rule, clip)
    for turn in range(6):
        who = turn % 2
        workers[who].step(turn)
        plain.flat.grad.copy_(gradient(pulled[who], turn, clip))
        plain._norm = 0.0  # it is clipped already
        plain.apply()
        assert torch.equal(train_state.vector, plain.flat.vector)
        pulled[who].load_state_dict(plain_net.state_dict())


def gradient(net, seed, clip):
    """By plain autograd, clipped by hand."""
    net.zero_grad()
    loss(net, seed).backward()
    flat = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    norm = math.sqrt(np.dot(flat.numpy(), flat.numpy()))
    if clip is None or norm <= clip:
        return flat
    return flat * (clip / norm)


@pytest.mark.parametrize("rule", RULES)
def test_shared_workers_see_each_others_steps_at_once(rule):
    """The slow weights of Lookahead, too, which count the steps of both."""
    train_state = SharedTrainState.of(optimizer_of(network(), rule), 2)
    first, second = (
        Worker(train_state, InPlaceSync, index, rule) for index in range(2)
    )
    plain_net = network()
    plain = optimizer_of(plain_net, rule)
    for turn in range(6):
        (first, second)[turn % 2].step(turn)
        plain.step(loss(plain_net, turn))
        for worker in (first, second):
            assert torch.equal(worker.optimizer.flat.vector, plain.flat.vector)
            worker.optimizer.flat.check()
    assert first.net[0].weight.data_ptr() == second.net[0].weight.data_ptr()
    assert first.optimizer.flat.grad.data_ptr() != second.optimizer.flat.grad.data_ptr()


def test_in_shared_memory_weights_are_read_when_a_training_event_begins():
    train_state = SharedTrainState.of(optimizer_of(network()), 2)
    one, other = (Worker(train_state, InPlaceSync, index) for index in range(2))
    other.step(0)
    other.step(1)
    one.optimizer.begin_event(0)
    one.step(2)
    assert one.sync.staleness == [0], "what came before was read"
    one.optimizer.begin_event(0)
    other.step(3)
    one.step(4)
    assert one.sync.staleness == [0, 1]


def test_statistics_of_a_network_that_are_not_finite_reach_no_worker():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    train_state = SharedTrainState.of(optimizer_of(net), 2)
    worker = CopySync(train_state, 0)
    optimizer = optimizer_of(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    worker.join(optimizer)
    optimizer.flat.statistics[0] = torch.nan
    with pytest.raises(NonFiniteLossError, match="running statistics"):
        worker.after_step(optimizer.flat)
    assert train_state.statistics.isfinite().all()


def test_statistics_reach_a_worker_that_reads_during_the_step_of_another(monkeypatch):
    nets = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for _ in range(3)]
    optimizers = [optimizer_of(net) for net in nets]
    train_state = SharedTrainState.of(optimizers[2], 2)
    one, other = (CopySync(train_state, index) for index in range(2))
    one.join(optimizers[0])
    other.join(optimizers[1])
    pull = one._pull

    def late_pull(flat):
        other.refresh(optimizers[1].flat)
        pull(flat)

    monkeypatch.setattr(one, "_pull", late_pull)
    optimizers[0].step(loss(nets[0], 0))
    other.refresh(optimizers[1].flat)
    assert nets[1][1].running_mean.abs().max() > 0
    assert torch.equal(optimizers[1].flat.statistics, train_state.statistics)


def test_centered_averages_that_two_have_written_at_once_give_no_nan():
    """The square average of one, the average of another: their difference is no
    variance."""
    net = network()
    flat = FlatParameters(net)
    rule = build_rule("GlobalRMSprop", {"centered": True}, flat)
    rule.state["grad_avg"].fill_(10.0)
    rule.apply(flat.vector, torch.ones_like(flat.grad), 1e-3)
    assert flat.vector.isfinite().all()


@BOTH
def test_staleness_counts_the_updates_of_others_since_the_weights_were_read(kind):
    train_state = SharedTrainState.of(optimizer_of(network()), 3)
    workers = [Worker(train_state, kind, index) for index in range(3)]
    for who in (0, 1, 1, 2, 0, 0):
        workers[who].step(0)
    assert [worker.sync.staleness for worker in workers] == [[0, 3, 0], [1, 0], [3]]
    assert train_state.updates.tolist() == [3, 2, 1]


def test_synced_statistics_are_those_of_what_all_have_seen():
    def transform():
        return nn.ModuleList(
            [network(), ValueTransform(use_symlog=False, normalize=True)]
        )

    nets = [transform() for _ in range(2)]
    optimizers = [optimizer_of(net) for net in nets]
    train_state = SharedTrainState.of(optimizers[0], 2)
    syncs = [CopySync(train_state, index) for index in range(2)]
    for sync, optimizer in zip(syncs, optimizers, strict=True):
        sync.join(optimizer)
    alone = ValueTransform(use_symlog=False, normalize=True)
    for turn in range(6):
        returns = randn(20, seed=turn) + turn
        nets[turn % 2][1].update(returns, SoloGroup())
        alone.update(returns, SoloGroup())
        optimizers[turn % 2].step(loss(nets[turn % 2][0], turn))
    assert_close(train_state.statistics, torch.stack([*alone.buffers()]))


def test_an_optimizer_with_private_state_cannot_be_shared(monkeypatch):
    with pytest.raises(TypeError, match="cannot be shared"):
        SharedTrainState.of(optimizer_of(network(), "SGD"), 1)
    monkeypatch.setitem(LOOKAHEAD, "optimizer", {"name": "RAdam"})
    with pytest.raises(TypeError, match="cannot be shared"):
        SharedTrainState.of(optimizer_of(network(), "Lookahead"), 1)


def test_a_full_shared_memory_is_reported_with_what_to_do(monkeypatch):
    def full(self):
        raise RuntimeError(
            "unable to allocate shared memory(shm): No space left on device (28)"
        )

    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    with pytest.raises(LabError, match="make room there"):
        SharedTrainState.of(optimizer_of(network()), 1)


class Counted(nn.Module):
    """A batch renormalisation, and a layer of spectral norm one."""

    def __init__(self):
        super().__init__()
        self.norm = BatchRenorm(3)
        self.layer = EmptyLinear(3, 4)
        init_linear(self.layer, None, 1.0, seeded(0))
        normalise_spectrum(self, seeded(1))

    def forward(self, x):
        return self.layer(self.norm(x))


def counted_worker(train_state, index):
    net = Counted().train()
    optimizer = optimizer_of(net)
    CopySync(train_state, index).join(optimizer)
    return net, optimizer


def test_synced_workers_add_up_what_they_have_counted():
    """Three workers take four steps each: twelve batches, by which the warm-up ends."""
    train_state = SharedTrainState.of(optimizer_of(Counted()), 3)
    workers = [counted_worker(train_state, index) for index in range(3)]
    for turn in range(12):
        net, optimizer = workers[turn % 3]
        optimizer.step(net(batch(turn)).square().mean())
        (place,) = optimizer.flat.counters
        assert train_state.statistics[place] == turn + 1


def test_synced_workers_keep_their_own_singular_unit_vectors():
    train_state = SharedTrainState.of(optimizer_of(Counted()), 2)
    workers = [counted_worker(train_state, index) for index in range(2)]
    for turn, (net, optimizer) in enumerate(workers):
        for name, vector in net.named_buffers():
            if name.endswith("_u"):
                vector.copy_(vector if turn else -vector)  # as good a singular vector
        optimizer.step(net(batch(turn)).square().mean())
    for net, optimizer in workers * 3:
        optimizer.step(net(batch(7)).square().mean())
        for name, vector in net.named_buffers():
            if name.endswith(("_u", "_v")):
                assert vector.norm().item() == pytest.approx(1.0, rel=1e-5)
        spectrum = torch.linalg.matrix_norm(net.layer.weight, 2).item()
        assert spectrum == pytest.approx(1.0, rel=0.05)
