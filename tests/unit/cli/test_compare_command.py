"""`slm-lab compare`: bad input, before anything runs."""

import subprocess
import sys

import pytest

from tests.faults.lab import LAB, NAME, call, write_spec
from tests.support import ppo, reinforce

WRONG = {
    "nothing": ([], ["name a spec", "--resume"]),
    "an unknown word": (["--modes", "synced,sharde"], ["--modes sharde", '"shared"']),
    "the baseline": (["--modes", "false"], ["this is the baseline"]),
    "an empty word": (["--modes", "synced,,shared"], ["--modes synced,,shared", "comma"]),
    "no whole number": (["--workers", "1,two"], ["--workers two", "whole numbers"]),
    "no workers at all": (["--workers", "0"], ["--workers 0", ">= 1"]),
    "no seeds": (["--seeds", "0"], ["--seeds"]),
    "a threshold that is none": (["--threshold", "high"], ["--threshold"]),
    "an optimizer without a twin": (
        ["--modes", "shared", "-s", "agent.net.optim_spec.name=SGD"],
        ["agent.net.optim_spec.name", "GlobalAdam"],
    ),
    "an unknown environment": (["-s", "env.name=CartPoel-v1"], ["CartPole-v1"]),
    "no comparison": (["--resume", "."], ["not the folder of a comparison"]),
    "something beside --resume": (["--resume", ".", "--seeds", "4"], ["--seeds", "--resume"]),
    "a plug-in that is not there": (["--import", "nowhere"], ["--import nowhere"]),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_one_clear_message_and_leaves_nothing_behind(what, tmp_path):
    args, words = WRONG[what]
    write_spec(tmp_path, ppo())
    spec = [] if what == "nothing" or "--resume" in args else ["spec.json", NAME]
    done = call([str(LAB), "compare", *spec, *args], tmp_path)
    assert done.code == 2, done.err
    for word in words:
        assert word in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["spec.json"]


def test_an_algorithm_that_a_mode_cannot_train_is_refused_by_name(tmp_path):
    write_spec(tmp_path, reinforce())
    done = call([str(LAB), "compare", "spec.json", NAME, "--modes", "actor_learner"], tmp_path)
    assert done.code == 2
    assert "agent.memory.name = 'OnPolicyReplay'" in done.err
    assert "use OnPolicyBatchReplay" in done.err


def test_help_needs_no_heavy_import():
    code = (
        "import atexit, sys\n"
        "heavy = {'torch', 'ray', 'plotly', 'matplotlib', 'gymnasium', 'pandas'}\n"
        "atexit.register(lambda: print('imported', sorted(heavy & set(sys.modules))))\n"
        "from slm_lab.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "compare", "--help"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "imported []" in done.stdout
