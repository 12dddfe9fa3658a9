"""The programs of `bench/` that measure one run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slm_lab.session.status_board import LOOP_PARTS

ROOT = Path(__file__).parents[2]


def measured(*words):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "bench.contestant", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.medium
@pytest.mark.parametrize("case", ["ppo_cartpole", "dqn_cartpole"])
def test_the_lab_is_measured_with_the_shares_of_its_time(case):
    found = measured("lab", case, "--frames", "2048")
    assert found["frames_per_second"] > 0
    assert list(found["shares"]) == list(LOOP_PARTS)
    assert all(share > 0 for share in found["shares"].values())
    assert sum(found["shares"].values()) < 1
