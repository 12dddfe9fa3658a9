"""`slm-lab doctor` on a terminal and for scripts."""

import json
import re
import shlex
import signal

import pytest

from tests.faults.lab import LAB, call, lab, row_count, started, wait_until, write_spec
from tests.support import ppo
from tests.unit.cli.trained import assert_bad_input
from tests.unit.records.runs import write_ended, write_run


def doctor(folder, *words):
    done = lab(folder, "doctor", *words)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_doctor_examines_the_machine(tmp_path):
    output = doctor(tmp_path)
    assert [
        word
        for word in ("Python", "torch", "cores", "disk", "extras")
        if word not in output
    ] == []
    assert {part["name"] for part in json.loads(doctor(tmp_path, "--json"))} >= {
        "GPU",
        "open files",
    }
    assert list(tmp_path.iterdir()) == []


def test_doctor_numbers_the_findings_of_a_run_with_advice(tmp_path):
    write_ended(
        tmp_path / "data", "beta", endings=("failed", "finished"), imports=["my_envs"]
    )
    lines = doctor(tmp_path, "beta").splitlines()
    assert lines[1] == "1. 1 of 2 Sessions failed"
    assert lines[2].startswith("   seen: Session 0 at frame ")
    assert lines[3].startswith("   try: resume it: slm-lab run train@")
    assert lines[3].endswith(" --import my_envs")
    assert "the agent was not looked at: " in lines[-1]
    done = lab(tmp_path, "doctor", "beta", "--json")
    assert json.loads(done.out)[0]["what"] == "1 of 2 Sessions failed"
    assert done.err.startswith("the agent was not looked at: ")


def test_a_real_run_is_looked_at_with_its_agent(run):
    output = doctor(run, "latest")
    assert "too little for a claim" in output
    assert "was not looked at" not in output


@pytest.mark.medium
def test_every_command_that_is_advised_runs_and_a_short_run_is_not_judged(tmp_path):
    """A run of a few updates that is stopped, then resumed as advised, and evaluated as
    advised."""
    write_spec(tmp_path, ppo(env__max_frame=2000, meta__log_frequency=50))
    with started(tmp_path) as running:
        wait_until(lambda: row_count(tmp_path) > 3)
        running.signal_group(signal.SIGINT)
        running.end()
    advised = []
    for _ in range(2):
        findings = json.loads(lab(tmp_path, "doctor", "latest", "--json").out)
        judged = {finding["what"] for finding in findings}
        assert judged <= {"it was stopped before its end", "too little for a claim"}
        for finding in findings:
            for command in re.findall(r"slm-lab (run .*)", finding["advice"]):
                advised.append(command.partition("@")[0])
                done = call([str(LAB), *shlex.split(command)], tmp_path)
                assert (done.code, done.err) == (0, "")
    assert {"run train", "run eval"} <= set(advised)


def test_a_missing_run_is_one_line(tmp_path):
    write_run(tmp_path / "data")
    assert_bad_input(
        tmp_path, ["doctor", "nothing"], ["there is no run folder nothing"], code=3
    )
