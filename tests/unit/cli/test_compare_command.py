"""`slm-lab compare`: bad input, before anything runs."""

import pytest

from tests.faults.lab import NAME, write_spec
from tests.support import ppo, reinforce
from tests.unit.cli.trained import assert_bad_input

WRONG = {
    "nothing": ([], ["name a spec", "--resume"]),
    "an unknown word": (["--modes", "synced,sharde"], ["--modes sharde", '"shared"']),
    "the baseline": (["--modes", "false"], ["this is the baseline"]),
    "an empty word": (
        ["--modes", "synced,,shared"],
        ["--modes synced,,shared", "comma"],
    ),
    "no whole number": (["--workers", "1,two"], ["--workers two", "whole numbers"]),
    "no workers at all": (["--workers", "0"], ["--workers 0", ">= 1"]),
    "no seeds": (["--seeds", "0"], ["--seeds"]),
    "a threshold that is none": (["--threshold", "high"], ["--threshold"]),
    "a threshold that no return reaches": (
        ["--threshold", "nan"],
        ["--threshold nan", "finite"],
    ),
    "an optimizer without a twin": (
        ["--modes", "shared", "-s", "agent.net.optim_spec.name=SGD"],
        ["agent.net.optim_spec.name", "GlobalAdam"],
    ),
    "an unknown environment": (["-s", "env.name=CartPoel-v1"], ["CartPole-v1"]),
    "no comparison": (["--resume", "."], ["not the folder of a comparison"]),
    "something beside --resume": (
        ["--resume", ".", "--seeds", "4"],
        ["--seeds", "--resume"],
    ),
    "a plug-in that is not there": (["--import", "nowhere"], ["--import nowhere"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_one_clear_message_and_leaves_nothing_behind(what, tmp_path):
    args, words = WRONG[what]
    write_spec(tmp_path, ppo())
    spec = [] if what == "nothing" or "--resume" in args else ["spec.json", NAME]
    assert_bad_input(tmp_path, ["compare", *spec, *args], words)


def test_an_algorithm_that_a_mode_cannot_train_is_refused_by_name(tmp_path):
    write_spec(tmp_path, reinforce())
    args = ["compare", "spec.json", NAME, "--modes", "actor_learner"]
    words = ["agent.memory.name = 'OnPolicyReplay'", "use OnPolicyBatchReplay"]
    assert_bad_input(tmp_path, args, words)
