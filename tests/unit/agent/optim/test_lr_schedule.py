"""Learning-rate schedules."""

import pytest
import torch

from slm_lab.agent.optim.optimizer import build_learning_rate

TORCH_SCHEDULES = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("CosineAnnealingLR", {"T_max": 20}),
    ("LinearLR", {"total_iters": 10}),
    ("MultiStepLR", {"milestones": [4, 8]}),
    (
        "CyclicLR",
        {"base_lr": 1e-4, "max_lr": 1e-2, "step_size_up": 5, "cycle_momentum": False},
    ),
    ("OneCycleLR", {"max_lr": 1e-2, "total_steps": 40, "cycle_momentum": False}),
    ("CosineAnnealingWarmRestarts", {"T_0": 5}),
    ("PolynomialLR", {"total_iters": 12}),
]


def test_linear_to_zero_reaches_zero_and_stays():
    rate = build_learning_rate(0.1, "LinearToZero", {"frame": 1000})
    seen = []
    for frame in (0, 250, 1000, 2000):
        rate.set_frame(frame)
        seen.append(rate.value)
    assert seen == pytest.approx([0.1, 0.075, 0.0, 0.0])


def test_linear_to_min_stops_at_its_share():
    rate = build_learning_rate(0.1, "LinearToMin", {"frame": 1000, "min_factor": 0.2})
    rate.set_frame(500)
    assert rate.value == pytest.approx(0.06)
    rate.set_frame(5000)
    assert rate.value == pytest.approx(0.02)


@pytest.mark.parametrize(("name", "args"), TORCH_SCHEDULES, ids=str)
def test_torch_schedules_take_frames_for_epochs(name, args):
    """However few frames are looked at, the rate is the one torch reaches by
    counting."""
    stand_in = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1e-2)
    counting = getattr(torch.optim.lr_scheduler, name)(stand_in, **args)
    rate = build_learning_rate(1e-2, name, args)
    for frame in range(1, 31):
        stand_in.step()
        counting.step()
        if frame % 7 == 0:
            rate.set_frame(frame)
            assert rate.value == pytest.approx(stand_in.param_groups[0]["lr"], rel=1e-6)


def test_a_one_cycle_policy_stays_at_its_end():
    rate = build_learning_rate(
        1e-2, "OneCycleLR", {"max_lr": 1e-2, "total_steps": 40, "cycle_momentum": False}
    )
    rate.set_frame(39)
    end = rate.value
    rate.set_frame(10_000)
    assert rate.value == end
