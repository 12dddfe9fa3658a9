"""A run that trains on with a larger budget, as a user types it."""

import re

import pytest

import slm_lab
from slm_lab.core.errors import UsageError
from tests.faults.lab import call_here, command, rows_file
from tests.support import ppo, read_rows
from tests.unit.cli.trained import trained

SPEC = ppo(
    agent__algorithm__entropy_coef_spec={"start_val": 0.01},
    agent__net__lr_scheduler_spec={"name": "LinearToZero"},
    env__max_frame=512,
    meta__log_frequency=16,
)


def rates_after(folder, frame):
    found = read_rows(rows_file(folder))
    return found["lr"][found["frame"] > frame].dropna()


@pytest.mark.medium
def test_a_rate_that_has_fallen_to_zero_is_asked_for_before_more_frames_are_trained(
    tmp_path,
):
    folder = trained(tmp_path, SPEC)
    longer = ("-s", "env.max_frame=1024")
    refused = call_here(command(folder, "train@latest", *longer), folder)
    assert refused.code == 2
    assert len(refused.err.strip().splitlines()) == 1
    assert "agent.net.lr_scheduler_spec.frame 512" in refused.err
    assert len(rates_after(folder, 512)) == 0
    done = call_here(
        command(folder, "train@latest", *longer, "--schedules", "stretch"), folder
    )
    assert done.code == 0
    assert (rates_after(folder, 512).iloc[:-1] > 0).all()
    data = folder / "data"
    with pytest.raises(UsageError, match='in Python schedules="stretch" or "hold"'):
        slm_lab.train(resume="latest", sets={"env.max_frame": 2048}, data=data)
    sets, how = {"env.max_frame": 1280}, {"data": data, "quiet": True}
    slm_lab.train(resume="latest", sets=sets, schedules="hold", **how)
    assert (rates_after(folder, 1024) == 0).all()


@pytest.mark.medium
def test_the_advice_about_a_rate_of_zero_is_what_the_next_command_takes(tmp_path):
    early = {
        **SPEC["agent"]["net"],
        "lr_scheduler_spec": {"name": "LinearToZero", "frame": "20%"},
    }
    folder = trained(tmp_path, {**SPEC, "agent": {**SPEC["agent"], "net": early}})
    printed = call_here([command(folder, "train")[0], "doctor", "latest"], folder).out
    assert "the learning rate is zero" in printed
    (key,) = re.findall(r"set (agent\S+) to null", " ".join(printed.split()))
    assert key == "agent.net.lr_scheduler_spec.frame"
    sets = ("-s", "env.max_frame=1024", "-s", f"{key}=null")
    done = call_here(command(folder, "train@latest", *sets), folder)
    assert done.code == 0, done.err
    assert (rates_after(folder, 512).iloc[:-1] > 0).all()
