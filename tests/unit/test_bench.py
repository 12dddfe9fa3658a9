"""The programs of `bench/` that measure one run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import size
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


PACKED = """import os
from a import (
    b,
)
x, y = 1, 2
z = 1 if x else f(1, 2, 3, 4, 5)
if (w := isinstance(z, PPOSpec)) or isinstance(z, int):
    f(1, 2, 3, 4, key=5)
"""


def test_the_size_of_code_is_counted_in_tokens_and_its_density_by_line():
    counts = size.count(PACKED)
    assert counts == {
        "files": 1,
        "lines": 8,
        "code": 8,
        "tokens": 67,
        "ternaries": 1,
        "pairs": 1,
        "walruses": 1,
        "imports": 4,
        "positional": 1,
        "specs": 1,
    }


def test_layout_comments_and_blank_lines_are_no_tokens():
    airy = PACKED.replace("x, y = 1, 2", "# Two numbers.\n\nx, y = (\n    1, 2\n)\n")
    parentheses = 2
    tokens = size.count(PACKED)["tokens"]
    assert size.count(airy)["tokens"] == tokens + parentheses


def test_rooms_are_counted_without_the_contract_suites(tmp_path):
    for place in ("a.py", "room/b.py", "room/deep/c.py", "testing/d.py"):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PACKED)
    rooms = size.count_rooms(tmp_path)
    assert {name: counts["files"] for name, counts in rooms.items()} == {
        "room": 2,
        ".": 1,
    }
