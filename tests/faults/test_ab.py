"""`slm-lab ab` from beginning to end: real trainings, killed and resumed."""

import csv
import json
import os
import signal

import pytest

from tests.faults.lab import LAB, NAME, call, started_as, wait_until, write_spec
from tests.support import actor_critic

SPEC = actor_critic(env__max_frame=2000, meta__random_seed=5)
CHANGE = ("-s", "agent.net.optim_spec.lr=0.0001", "--seeds", "6", "--jobs", "1")


def ab(folder, data):
    """The command on the spec in `folder`."""
    return [str(LAB), "ab", "spec.json", *CHANGE, "--data", str(folder / data)]


def folder_in(folder, data):
    (found,) = (folder / data).glob(f"{NAME}_ab_*")
    return found


def found(folder):
    """The answer and the pairs of a test."""
    (table,) = folder.glob("*_ab_df.csv")
    (result,) = folder.glob("*_ab.json")
    return (
        json.loads(result.read_text()),
        list(csv.DictReader(table.read_text().splitlines())),
    )


@pytest.mark.slow
def test_a_test_that_is_killed_and_resumed_finds_what_an_uninterrupted_one_finds(
    folder,
):
    write_spec(folder, SPEC)
    done = call([*ab(folder, "whole"), "--json"], folder)
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    whole = folder_in(folder, "whole")
    result, pairs = found(whole)
    assert {key: document[key] for key in result} == result
    assert document["graphs"] == [str(whole / f"{NAME}_ab.png")]
    with started_as(folder, ab(folder, "killed")) as running:
        wait_until(
            lambda: list(folder.glob("killed/*/*_b_*/info/*_train.csv")),
        )
        os.kill(running.pid, signal.SIGKILL)
        running.end()
    killed = folder_in(folder, "killed")
    resumed = call([str(LAB), "ab", "--resume", str(killed), "--jobs", "1"], folder)
    assert (resumed.code, resumed.err) == (0, "")
    assert found(killed) == (result, pairs)
    assert result["sentence"] in resumed.out
