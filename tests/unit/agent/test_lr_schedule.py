"""Learning-rate schedules."""

import pytest

from slm_lab.agent.optim.lr_schedule import build_learning_rate

TORCH_SCHEDULES = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("CosineAnnealingLR", {"T_max": 20}),
    ("LinearLR", {"total_iters": 10}),
    ("MultiStepLR", {"milestones": [4, 8]}),
    ("CyclicLR", {"base_lr": 1e-4, "max_lr": 1e-2, "step_size_up": 5, "cycle_momentum": False}),
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
def test_a_restored_schedule_goes_on_as_the_uninterrupted_one(name, args):
    whole = build_learning_rate(1e-2, name, args)
    for _ in range(7):
        whole.count_step()
    saved = whole.state_dict()
    restored = build_learning_rate(1e-2, name, args)
    restored.load_state_dict(saved)
    assert restored.value == whole.value
    for _ in range(20):
        whole.count_step()
        restored.count_step()
        assert restored.value == whole.value
