"""Blocks of optimizers, with Lookahead around another one."""

import pytest
from pydantic import ValidationError

from slm_lab.spec.load import parse_spec
from slm_lab.spec.scale import scaled
from slm_lab.spec.schema.block import problems_of
from slm_lab.spec.schema.optim import OptimSpec
from tests.unit.spec.problems import assert_problem
from tests.unit.spec.spec_data import A3C, PPO, changed

RMS = {"name": "RMSprop", "alpha": 0.9, "lr": 2e-3}


def lookahead(**args):
    return {"name": "Lookahead", **args}


def in_full(optimizer, lr=1e-3, k=5, alpha=0.5):
    return {
        "name": "Lookahead",
        "lr": lr,
        "optimizer": optimizer,
        "k": k,
        "alpha": alpha,
    }


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (lookahead(), in_full({"name": "RAdam"})),
        (
            lookahead(optimizer="RAdam", lr=3e-4),
            in_full({"name": "RAdam"}, lr=3e-4),
        ),
        (
            lookahead(optimizer="Adam", betas=[0.5, 0.9], k=6, alpha=1),
            in_full({"name": "Adam", "betas": [0.5, 0.9]}, k=6, alpha=1.0),
        ),
        (
            lookahead(optimizer=RMS, alpha=0.8),
            in_full({"name": "RMSprop", "alpha": 0.9}, lr=2e-3, alpha=0.8),
        ),
        (lookahead(optimizer={"name": "SGD"}, lr=1), in_full({"name": "SGD"}, lr=1)),
        (lookahead(args={"optimizer": "SGD"}), in_full({"name": "SGD"})),
    ],
)
def test_lookahead_has_one_form_whatever_the_file_writes(written, meant):
    spec = OptimSpec.model_validate(written)
    assert spec.model_dump(mode="json") == meant
    assert OptimSpec.model_validate(meant) == spec


@pytest.mark.parametrize(
    ("args", "problems"),
    [
        (
            {"optimizer": "RAdm", "k": 0, "alpha": 0},
            {
                "optimizer": "unknown name for an optimizer; did you mean RAdam?",
                "k": "must be >= 1",
                "alpha": "must be > 0",
            },
        ),
        ({"epz": 1}, {"epz": "unknown argument; did you mean eps?"}),
        (
            {"optimizer": {"name": "Adam", "epz": 1}, "lr": 0},
            {
                "optimizer.epz": "unknown argument; did you mean eps?",
                "lr": "must be > 0",
            },
        ),
        (
            {"optimizer": RMS, "lr": 1e-3},
            {"lr": "is given in the block optimizer too; keep one"},
        ),
        ({"optimizer": "Lookahead"}, {"optimizer": "cannot be a second Lookahead"}),
        (
            {"optimizer": 5},
            {"optimizer": "must be the name of an optimizer, or a block {…}"},
        ),
        (
            {"optimizer": {"lr": 1}},
            {"optimizer.name": "is missing: the name of an optimizer"},
        ),
    ],
)
def test_a_problem_of_lookahead_names_the_key_that_the_file_has(args, problems):
    with pytest.raises(ValidationError) as error:
        OptimSpec.model_validate(lookahead(**args))
    assert {p.path: p.message for p in problems_of(error.value)} == problems


def test_workers_without_a_lock_share_the_state_inside_lookahead():
    keys = {"search": None, "meta__distributed": "shared"}
    path = "agent.net.optim_spec.optimizer.name"
    for name in ("Adam", "RAdam"):
        raw = changed(A3C, **keys, agent__net__optim_spec=lookahead(optimizer=name))
        assert_problem(raw, f"{path} = '{name}': keeps its state in one process")


@pytest.mark.parametrize(
    ("written", "alone"),
    [
        ({"name": "SGD", "momentum": 0.9}, {"name": "SGD", "weight_decay": 0.0}),
        ({"name": "Rprop", "etas": [0.1, 2]}, {"name": "Rprop"}),
        (
            lookahead(optimizer="Adam", betas=[0.5, 0.9], k=6),
            in_full({"name": "Adam", "weight_decay": 0.0}, k=6),
        ),
    ],
)
def test_an_optimizer_of_one_number_keeps_its_class_and_that_of_lookahead(
    written, alone
):
    spec = OptimSpec.model_validate(written).with_defaults(0.01)
    assert spec.model_dump(mode="json") == {**alone, "lr": 0.01}


def test_ranks_scale_the_rate_of_lookahead():
    keys = {"meta__distributed": "all_reduce", "meta__max_session": 4}
    optim = lookahead(optimizer="RAdam", lr=1e-3)
    raw = changed(PPO, **keys, meta__scale="weak", agent__net__optim_spec=optim)
    rate = scaled(parse_spec("s", raw)).agent.net.optim_spec.args["lr"]
    assert rate == pytest.approx(4e-3)
