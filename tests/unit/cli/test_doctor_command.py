"""`slm-lab doctor` on a terminal and for scripts."""

import json

from tests.faults.lab import LAB, call_here
from tests.unit.cli.trained import assert_bad_input
from tests.unit.experiment.runs import write_ended, write_run


def doctor(folder, *words):
    done = call_here([str(LAB), "doctor", *words], folder)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_doctor_examines_the_machine(tmp_path):
    output = doctor(tmp_path)
    assert [
        word for word in ("Python", "torch", "cores", "disk", "extras") if word not in output
    ] == []
    assert {part["name"] for part in json.loads(doctor(tmp_path, "--json"))} >= {
        "GPU",
        "open files",
    }
    assert list(tmp_path.iterdir()) == []


def test_doctor_numbers_the_findings_of_a_run_with_advice(tmp_path):
    write_ended(tmp_path / "data", "beta", endings=("failed", "finished"), imports=["my_envs"])
    lines = doctor(tmp_path, "beta").splitlines()
    assert lines[1] == "1. 1 of 2 Sessions failed"
    assert lines[2].startswith("   seen: Session 0 at frame ")
    assert lines[3].startswith("   try: resume it: slm-lab run train@")
    assert lines[3].endswith(" --import my_envs")
    assert "the agent was not looked at: " in lines[-1]
    done = call_here([str(LAB), "doctor", "beta", "--json"], tmp_path)
    assert json.loads(done.out)[0]["what"] == "1 of 2 Sessions failed"
    assert done.err.startswith("the agent was not looked at: ")


def test_a_real_run_is_looked_at_with_its_agent(run):
    output = doctor(run, "latest")
    assert "too little for a claim" in output
    assert "was not looked at" not in output


def test_a_missing_run_is_one_line(tmp_path):
    write_run(tmp_path / "data")
    assert_bad_input(tmp_path, ["doctor", "nothing"], ["there is no run folder nothing"], code=3)
