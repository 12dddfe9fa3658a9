"""A run that resumes with a larger budget and the schedules of the smaller one."""

import pytest

from slm_lab.spec.budget import decays
from slm_lab.testing.sessions import assert_same_run
from tests.support import parse, ppo, q_learning, rows, run_session

FALLING = {"name": "linear_decay", "start_val": 1.0, "end_val": 0.1}
RATE = {"name": "LinearToMin", "min_factor": 0.2}
SIZES = {"env__max_frame": 640, "meta__log_frequency": 64}
SPECS = {
    "PPO": ppo(
        agent__algorithm__entropy_coef_spec={**FALLING, "end_step": "50%"},
        agent__net__lr_scheduler_spec=RATE,
        **SIZES,
    ),
    "DQN": q_learning(
        "DQN",
        agent__algorithm__explore_var_spec={**FALLING, "end_step": "16%"},
        agent__net__lr_scheduler_spec=RATE,
        **SIZES,
    ),
}
WINDOWS = ("recent_return", "final_return")
"""Columns whose window is a share of the budget."""


def with_budget(spec, frames):
    """The spec with another budget and the same schedules, as a resume that holds them
    has."""
    return spec.model_copy(
        update={"env": spec.env.model_copy(update={"max_frame": frames})}
    )


@pytest.mark.medium
@pytest.mark.parametrize("name", SPECS)
def test_held_schedules_train_as_the_uninterrupted_run_of_these_schedules(
    name, tmp_path
):
    short = parse(SPECS[name])
    assert max(decay.end for decay in decays(short.to_json())) == 640
    longer = with_budget(short, 1280)
    whole = run_session(longer, tmp_path / "whole")
    run_session(short, tmp_path / "parts")
    resumed = run_session(longer, tmp_path / "parts", resume=True)
    assert_same_run(resumed, whole, without=WINDOWS)
    assert rows(resumed)["lr"].iloc[-1] == pytest.approx(2e-4)
