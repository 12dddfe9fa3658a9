"""N updates of the flat vector equal N updates of each parameter by torch.optim."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from slm_lab.agent.net.policy_value import PolicyValue
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import LearningRate, Optimizer
from slm_lab.agent.optim.rule import UpdateRule, build_rule, restore_rule
from slm_lab.core.errors import CheckpointError, NonFiniteLossError
from slm_lab.testing.play import same
from tests.support import needs

UPDATES = 30

CASES = [
    ("Adam", {}),
    ("Adam", {"betas": [0.8, 0.99], "eps": 1e-5, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("Adam", {"maximize": True}),
    ("AdamW", {}),
    ("AdamW", {"weight_decay": 0.3, "amsgrad": True}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.9, "eps": 1e-5, "weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.9}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "maximize": True}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adagrad", {}),
    ("NAdam", {}),
    ("Rprop", {}),
    pytest.param("Adafactor", {}, marks=needs("torch", "2.5")),
]


def around(name: str, **args: Any) -> dict[str, Any]:
    """The arguments of Lookahead around a rule, three fast steps at a time."""
    return {"optimizer": {"name": name, **args}, "k": 3, "alpha": 0.5}


WRAPPED = [
    ("Lookahead", around("Adam", amsgrad=True)),
    ("Lookahead", around("RMSprop", momentum=0.9)),
    ("Lookahead", around("RAdam")),
    pytest.param("Lookahead", around("Adafactor"), marks=needs("torch", "2.5")),
]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(16, 3, generator=generator) for _ in range(UPDATES)]


def loss_of(net: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return (net(batch) - batch[:, :2].sin()).square().mean()


def torch_reference(name: str, args: dict, clip: float | None) -> torch.Tensor:
    net = network()
    kind = getattr(torch.optim, name)
    fused = {"fused": True} if name in ("Adam", "AdamW") else {}
    optimizer = kind(net.parameters(), lr=1e-2, **args, **fused)
    for batch in batches():
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
    return nn.utils.parameters_to_vector(net.parameters()).detach()


def flat_optimizer(
    net: nn.Module, name: str, args: dict, clip: float | None = None
) -> Optimizer:
    flat = FlatParameters(net)
    return Optimizer(flat, build_rule(name, args, flat), LearningRate(1e-2), clip)


@pytest.mark.parametrize(("name", "args"), CASES, ids=str)
def test_flat_updates_equal_per_parameter_updates_bit_for_bit(name, args):
    net = network()
    optimizer = flat_optimizer(net, name, args)
    for batch in batches():
        optimizer.step(loss_of(net, batch))
    optimizer.flat.check()
    assert torch.equal(optimizer.flat.vector, torch_reference(name, args, clip=None))


@pytest.mark.parametrize("name", ["Adam", "RMSprop"])
def test_clipping_is_by_the_global_norm(name):
    net = network()
    optimizer = flat_optimizer(net, name, {}, clip=0.05)
    norms = [optimizer.step(loss_of(net, batch))[1] for batch in batches()]
    assert max(norms) > 0.05
    torch.testing.assert_close(
        optimizer.flat.vector, torch_reference(name, {}, clip=0.05)
    )


@pytest.mark.parametrize("name", ["Adam", "RMSprop"])
def test_the_global_rule_is_the_plain_rule(name):
    plain_net = network()
    global_net = network()
    plain = flat_optimizer(plain_net, name, {})
    shared = flat_optimizer(global_net, f"Global{name}", {})
    for batch in batches():
        plain.step(loss_of(plain_net, batch))
        shared.step(loss_of(global_net, batch))
    assert torch.equal(plain.flat.vector, shared.flat.vector)


@pytest.mark.parametrize(("name", "args"), [*CASES, *WRAPPED], ids=str)
def test_a_failed_step_changes_nothing_and_another_is_the_same_step(name, args):
    rule, flat = rule_of(name, args)
    other, other_flat = rule_of(name, args)
    rule.apply(flat.vector, flat.grad, 1e-3)
    other.apply(other_flat.vector, other_flat.grad, 1e-3, torch.zeros(()))
    assert torch.equal(flat.vector, other_flat.vector)
    flat.grad.fill_(math.nan)
    rule.apply(flat.vector, flat.grad, 1e-3, torch.ones(()))
    assert torch.equal(flat.vector, other_flat.vector)
    assert same(rule.state_dict(), other.state_dict())


@pytest.mark.parametrize(("name", "args"), [*CASES, *WRAPPED], ids=str)
def test_a_restored_optimizer_continues_bit_for_bit(name, args):
    net = network()
    optimizer = flat_optimizer(net, name, args)
    for batch in batches()[:10]:
        optimizer.step(loss_of(net, batch))
    saved = optimizer.state_dict()
    for batch in batches()[10:]:
        optimizer.step(loss_of(net, batch))
    other_net = network()
    other = flat_optimizer(other_net, name, args)
    other.load_state_dict(saved)
    for batch in batches()[10:]:
        other.step(loss_of(other_net, batch))
    assert torch.equal(other.flat.vector, optimizer.flat.vector)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_touches_no_weight(bad):
    net = network()
    optimizer = flat_optimizer(net, "Adam", {})
    before = optimizer.flat.vector.clone()
    with pytest.raises(NonFiniteLossError, match="the loss is"):
        optimizer.step(loss_of(net, batches()[0]) * bad)
    assert torch.equal(optimizer.flat.vector, before)


def test_a_gradient_that_is_not_finite_touches_no_weight():
    net = network()
    optimizer = flat_optimizer(net, "Adam", {})
    before = optimizer.flat.vector.clone()
    zero = (net(batches()[0]) * 0).abs().sum()
    with pytest.raises(NonFiniteLossError, match="gradient"):
        optimizer.step(zero.sqrt())  # √0 has an infinite slope, times zero: NaN
    assert torch.equal(optimizer.flat.vector, before)


def test_neither_network_moves_where_one_loss_is_not_finite():
    actor = network()
    critic = network()
    optimizers = [flat_optimizer(net, "Adam", {}) for net in (actor, critic)]
    pair = PolicyValue([actor, critic], None, dict(enumerate(optimizers)), None)
    before = [each.flat.vector.clone() for each in optimizers]
    batch = batches()[0]
    with pytest.raises(NonFiniteLossError):
        pair.step(loss_of(actor, batch), loss_of(critic, batch) * math.nan)
    assert all(
        torch.equal(each.flat.vector, b)
        for each, b in zip(optimizers, before, strict=True)
    )


def rule_of(name: str, args: dict, steps: int = 2) -> tuple[UpdateRule, FlatParameters]:
    flat = FlatParameters(network())
    rule = build_rule(name, args, flat)
    for _ in range(steps):
        flat.grad.fill_(0.1)
        rule.apply(flat.vector, flat.grad, 1e-3)
    return rule, flat


@pytest.mark.parametrize(
    ("saved", "built", "expected_error"),
    [
        (
            ("Adam", {}),
            ("RMSprop", {}),
            "as exp_avg, exp_avg_sq, step and is built as square_avg",
        ),
        (
            ("Adam", {}),
            ("Adam", {"amsgrad": True}),
            "is built as exp_avg, exp_avg_sq, max_exp_avg",
        ),
        (
            ("RMSprop", {"momentum": 0.9}),
            ("RMSprop", {}),
            "momentum_buffer, square_avg and is",
        ),
        (("NAdam", {}), ("Adagrad", {}), "saved as NAdam and is built as Adagrad"),
        (
            ("SGD", {"momentum": 0.9}),
            ("Adam", {}),
            "saved as SGD and is built as exp_avg",
        ),
        (("RMSprop", {}), ("SGD", {}), "saved as square_avg and is built as SGD"),
        (
            ("Lookahead", around("SGD")),
            ("SGD", {}),
            "saved as SGD, fast_steps, slow and is built as SGD: the spec",
        ),
        (
            ("Adam", {}),
            ("Lookahead", around("Adam")),
            "and is built as exp_avg, exp_avg_sq, fast_steps, slow, step",
        ),
    ],
)
def test_the_state_of_another_rule_is_refused_and_changes_nothing(
    saved, built, expected_error
):
    state = rule_of(*saved)[0].state_dict()
    rule, _ = rule_of(*built)
    before = rule.state_dict()
    with pytest.raises(
        CheckpointError, match=r"was saved as .*undo the change of its"
    ) as error:
        restore_rule(rule, state, None)
    assert expected_error in str(error.value)
    assert same(rule.state_dict(), before)


class OneWeight:
    """A network of one weight under Lookahead, with a constant learning rate."""

    def __init__(self, k: int, lr: float, momentum: float = 0.0) -> None:
        net = nn.Linear(1, 1, bias=False)
        self.lr = lr
        self.flat = FlatParameters(net)
        inner = {"name": "SGD", "momentum": momentum}
        args = {"optimizer": inner, "k": k, "alpha": 0.5}
        self.rule = build_rule("Lookahead", args, self.flat)

    def begin_at(self, weight: float) -> None:
        self.flat.vector.fill_(weight)

    def step(self, gradient: float | None = None) -> float:
        """The weight after a step with this gradient; by default the weight itself,
        the gradient of half its square."""
        slope = self.flat.vector.clone()
        if gradient is not None:
            slope.fill_(gradient)
        self.flat.grad.copy_(slope)
        self.rule.apply(self.flat.vector, self.flat.grad, self.lr)
        return float(self.flat.vector)


def test_lookahead_goes_halfway_back_after_every_second_step():
    """By hand: 8 → 4 → 2, and slow 8 + (2 − 8) / 2 = 5; 5 → 2.5 → 1.25, and slow
    5 + (1.25 − 5) / 2 = 3.125. Weights that come after the rule was made count."""
    agent = OneWeight(k=2, lr=0.5)
    agent.begin_at(8.0)
    assert [agent.step() for _ in range(5)] == [4.0, 5.0, 2.5, 3.125, 1.5625]


def test_the_momentum_inside_lookahead_goes_on_over_a_synchronisation():
    """By hand, with steps of 1, 1.5 and 1.75: 0 → −1 → −2.5, slow −1.25 → −3."""
    agent = OneWeight(k=2, lr=1.0, momentum=0.5)
    agent.begin_at(0.0)
    assert [agent.step(gradient=1.0) for _ in range(3)] == [-1.0, -1.25, -3.0]


@pytest.mark.parametrize(("name", "args"), CASES, ids=str)
def test_lookahead_that_follows_each_step_wholly_is_the_rule_inside(name, args):
    whole = {"optimizer": {"name": name, **args}, "k": 1, "alpha": 1.0}
    nets = [network(), network()]
    plain = flat_optimizer(nets[0], name, args)
    wrapped = flat_optimizer(nets[1], "Lookahead", whole)
    for batch in batches():
        plain.step(loss_of(nets[0], batch))
        wrapped.step(loss_of(nets[1], batch))
    assert torch.equal(plain.flat.vector, wrapped.flat.vector)


def test_networks_that_follow_slow_weights_are_those_of_torch_averaged_by_hand():
    net = network()
    optimizer = flat_optimizer(net, "Lookahead", around("RAdam"))
    other = network()
    inner = torch.optim.RAdam(other.parameters(), lr=1e-2)
    slow = [p.detach().clone() for p in other.parameters()]
    for turn, batch in enumerate(batches(), start=1):
        optimizer.step(loss_of(net, batch))
        inner.zero_grad()
        loss_of(other, batch).backward()
        inner.step()
        if turn % 3 == 0:
            for start, parameter in zip(slow, other.parameters(), strict=True):
                start.add_(parameter.detach() - start, alpha=0.5)
                parameter.data.copy_(start)
    expected = nn.utils.parameters_to_vector(other.parameters()).detach()
    torch.testing.assert_close(optimizer.flat.vector, expected)
