"""`slm-lab ab`: its words, and bad input before anything runs."""

import json

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.studies.resolve import specs_of
from tests.faults.lab import NAME, write_spec
from tests.support import ppo
from tests.unit.cli.trained import assert_bad_input


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a file of two specs, and one of one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.json").write_text(json.dumps({"first": ppo(), "second": ppo()}))
    (tmp_path / "one.json").write_text(json.dumps({"only": ppo()}))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "a", "b"),
    [
        ("one.json", ("one.json", None), ("one.json", None)),
        ("two.json first", ("two.json", "first"), ("two.json", "first")),
        ("two.json first second", ("two.json", "first"), ("two.json", "second")),
        ("two.json first one.json", ("two.json", "first"), ("one.json", None)),
        ("one.json two.json first", ("one.json", None), ("two.json", "first")),
        (
            "two.json second one.json only",
            ("two.json", "second"),
            ("one.json", "only"),
        ),
        (
            "a2c_gae_cartpole ppo_cartpole",
            ("a2c_gae_cartpole", None),
            ("ppo_cartpole", None),
        ),
        ("ppo CartPole-v1", ("ppo", "CartPole-v1"), ("ppo", "CartPole-v1")),
        (
            "ppo CartPole-v1 a2c CartPole-v1",
            ("ppo", "CartPole-v1"),
            ("a2c", "CartPole-v1"),
        ),
        ("ppo CartPole-v1 one.json", ("ppo", "CartPole-v1"), ("one.json", None)),
    ],
)
def test_the_words_name_two_specs(folder, words, a, b):
    assert specs_of(words.split()) == (a, b)


@pytest.mark.parametrize("words", ["", "one.json one.json one.json"])
def test_words_that_name_no_two_specs_are_refused(folder, words):
    with pytest.raises(UsageError, match="slm-lab ab A B"):
        specs_of(words.split())


WRONG = {
    "nothing": ([], ["name what to test", "--resume FOLDER"]),
    "one spec alone": (["spec.json", NAME], ["A and B are the same", "-s"]),
    "a key that is not there": (
        ["spec.json", "-s", "agent.algorithm.lamm=1"],
        ["agent.algorithm.lamm", "lam"],
    ),
    "another budget of b": (
        ["spec.json", "-s", "env.max_frame=100"],
        ["B", "env.max_frame = 100", "must be that of A"],
    ),
    "too few seeds": (
        ["spec.json", "-s", "agent.algorithm.lam=1", "--seeds", "3"],
        ["--seeds 3", "at least 6"],
    ),
    "no confidence": (
        ["spec.json", "-s", "agent.algorithm.lam=1", "--confidence", "95"],
        ["--confidence 95", "0.95"],
    ),
    "a negative smallest": (
        ["spec.json", "-s", "agent.algorithm.lam=1", "--smallest=-1"],
        ["--smallest -1", "above 0"],
    ),
    "no test": (["--resume", "."], ["not the folder of a comparison"]),
    "something beside --resume": (
        ["--resume", ".", "--smallest", "4"],
        ["--smallest", "--resume"],
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_one_clear_message_and_leaves_nothing_behind(what, tmp_path):
    args, words = WRONG[what]
    write_spec(tmp_path, ppo())
    assert_bad_input(tmp_path, ["ab", *args], words)
