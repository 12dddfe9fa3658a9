"""Training works with every name of torch that a spec may have."""

import math

import pytest

from slm_lab.agent.torch_versions import ADAFACTOR
from slm_lab.core.errors import SpecError
from slm_lab.spec.schema.torch_table import entries, refusals
from tests.support import parse, ppo, run_session

SCHEDULER_ARGS = {
    "StepLR": {"step_size": 3},
    "MultiStepLR": {"milestones": [2, 4]},
    "ExponentialLR": {"gamma": 0.99},
    "CosineAnnealingLR": {"T_max": 10},
    "CyclicLR": {"base_lr": 1e-4, "max_lr": 1e-3, "cycle_momentum": False},
    "OneCycleLR": {"max_lr": 1e-3, "total_steps": 1000},
    "CosineAnnealingWarmRestarts": {"T_0": 5},
    "LinearToZero": {"frame": 200},
    "LinearToMin": {"frame": 200},
}


def choices():
    """(key of the net, its value) for every name that is not refused."""
    for name, entry in entries("optimizers").items():
        if entry.refused is None:
            yield "optim_spec", {"name": name, "lr": 1e-3}
    for name, entry in entries("schedulers").items():
        if entry.refused is None:
            yield "lr_scheduler_spec", {"name": name, **SCHEDULER_ARGS.get(name, {})}
    for name, entry in entries("losses").items():
        if entry.refused is None:
            yield "loss_spec", {"name": name}
    for key, kind in (
        ("init_fn", "initialisers"),
        ("hid_layers_activation", "activations"),
    ):
        yield from (
            (key, name) for name, reason in refusals(kind).items() if reason is None
        )


@pytest.mark.parametrize(("key", "value"), list(choices()), ids=str)
def test_training_with_it_works(key, value, tmp_path):
    if value == {"name": "Adafactor", "lr": 1e-3} and not ADAFACTOR:
        pytest.skip("this torch is older than Adafactor")
    spec = parse(ppo(**{f"agent__net__{key}": value}, env__max_frame=200))
    session = run_session(spec, tmp_path)
    assert session.agent.learner.opt_step > 0
    assert math.isfinite(session.tracker.last_row["loss"])


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("optim_spec", {"name": "LBFGS"}, "again and again"),
        ("optim_spec", {"name": "Muon"}, "matrices only"),
        ("lr_scheduler_spec", {"name": "LambdaLR"}, "functions or objects"),
        ("loss_spec", {"name": "NLLLoss"}, "classes"),
        ("hid_layers_activation", "rrelu", "random numbers"),
        ("init_fn", "dirac_", "convolutions"),
    ],
)
def test_names_that_cannot_work_are_refused_with_the_reason(key, value, reason):
    with pytest.raises(SpecError, match=reason):
        parse(ppo(**{f"agent__net__{key}": value}))
