"""N updates of the flat vector equal N updates of each parameter by torch.optim."""

import math

import pytest
import torch
from torch import nn

from slm_lab.agent.net.policy_value import PolicyValue
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import LearningRate, Optimizer
from slm_lab.agent.optim.rule import UpdateRule, build_rule
from slm_lab.core.errors import CheckpointError, NonFiniteLossError
from slm_lab.testing.play import same

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
    ("Adafactor", {}),
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


@pytest.mark.parametrize(("name", "args"), CASES, ids=str)
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


@pytest.mark.parametrize(("name", "args"), CASES, ids=str)
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
        rule.load_state_dict(state)
    assert expected_error in str(error.value)
    assert same(rule.state_dict(), before)
