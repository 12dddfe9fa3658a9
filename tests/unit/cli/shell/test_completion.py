"""What the shell is offered after a beginning of a command."""

import json
import os
import subprocess

import pytest

from tests.faults.lab import LAB
from tests.support import ppo
from tests.unit.records.runs import write_run

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a spec file of two specs, a broken one, and two runs."""
    folder = tmp_path_factory.mktemp("typed")
    template = {**ppo(), "env": {"name": "${world}"}}
    (folder / "spec.json").write_text(json.dumps({"first": ppo(), "second": template}))
    (folder / "broken.json").write_text("{")
    (folder / "specs").mkdir()
    for stamp in ("2026_11_22_030000", "2026_11_23_030000"):
        write_run(folder / "data", stamp=stamp)
    return folder


def offered(folder, *words):
    """The words offered for the last of `words`, as bash asks for them."""
    asked = {"COMP_WORDS": " ".join(("slm-lab", *words)), "COMP_CWORD": str(len(words))}
    env = {**os.environ, **asked, "_SLM_LAB_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [LAB],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "spe"], ["specs/", "spec.json"]),
        (["run", "ppo_mujoco."], ["ppo_mujoco.json"]),
        (["run", "cross"], ["crossq", "crossq_cartpole.json"]),
        (["run", "tr"], ["train", "train@"]),
        (["run", "spec.json", "s"], ["second", "search", "search@"]),
        (["run", "broken.json", "s"], ["search", "search@"]),
        (["run", "spec.json", "first", "eval@la"], ["eval@latest"]),
        (
            ["run", "train@small"],
            ["train@small_2026_11_23_030000", "train@small_2026_11_22_030000"],
        ),
        (["run", "spec.json", "first", "-s", "env.num"], ["env.num_envs="]),
        (["run", "spec.json", "second", "-s", "wor"], ["world="]),
        (["run", "nothing.json", "first", "-s", "env"], []),
        (["run", "spec.json", "first", "--init-from", "la"], ["latest"]),
        (["doctor", "l"], ["latest"]),
        (["diff", "latest", "small_2026_11_22"], ["small_2026_11_22_030000"]),
        (["doctor", "--data", "elsewhere", "small"], []),
        (["compare", "spec.json", "fi"], ["first"]),
        (["ab", "spec.json", "fi"], ["first"]),
        (["ab", "ppo_mujoco."], ["ppo_mujoco.json"]),
        (["ab", "spec.json", "first", "-s", "env.num"], ["env.num_envs="]),
        (["spec", "check", "spec."], ["spec.json"]),
        (["spec", "show", "spec.json", "se"], ["second"]),
    ],
    ids=" ".join,
)
def test_a_beginning_is_completed(folder, words, expected):
    found = offered(folder, *words)
    assert set(expected) <= set(found) if expected else found == []
    assert all(word.startswith(words[-1]) for word in found)
