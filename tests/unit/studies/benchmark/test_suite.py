"""The file of a suite: its rows, and what is wrong with it."""

import pytest

from slm_lab.core.errors import SpecError, UsageError
from slm_lab.studies.benchmark.suite import read_suite, shipped_suites


def suite(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return read_suite(str(file))


def test_a_suite_of_six_lines_is_every_algorithm_in_every_environment(tmp_path):
    text = """
seeds: [1, 2]
set: {env.max_frame: 1000}
runs:
  - specs: [ppo, a2c, dqn, sac, crossq]
    envs: [A-v0, B-v0, C-v0]
    bound: 3
"""
    mine = suite(tmp_path, text)
    assert mine.name == "mine"
    assert len(mine.rows) == 15
    assert mine.rows[1].name == "ppo B-v0"
    assert (mine.rows[1].file, mine.rows[1].env) == ("ppo", "B-v0")
    # rainbow and c51 are one algorithm with other keys: the word is what differs
    assert mine.rows[1].method == "ppo"
    assert {row.seeds for row in mine.rows} == {(1, 2)}
    assert {row.sets for row in mine.rows} == {("env.max_frame=1000",)}
    assert {row.bound for row in mine.rows} == {3}


def test_runs_may_have_their_own_name_seeds_and_changes(tmp_path):
    text = """
seeds: [1]
set: {env.max_frame: 1000, meta.threads: 1}
runs:
  - specs: [my.yaml first]
  - {specs: [my.yaml first], name: fast, seeds: [7, 8], set: {env.max_frame: 10}}
"""
    first, fast = suite(tmp_path, text).rows
    assert (first.name, first.method) == ("first", None)
    assert (first.file, first.spec_name, first.env) == ("my.yaml", "first", None)
    assert (fast.name, fast.method, fast.seeds) == ("fast", "fast", (7, 8))
    assert fast.sets == ("env.max_frame=10", "meta.threads=1")


WRONG = {
    "no seeds": ("runs: [{specs: [ppo]}]", "seeds"),
    "a negative seed": ("{seeds: [-1], runs: [{specs: [ppo]}]}", "seeds.0"),
    "no rows": ("{seeds: [1], runs: []}", "runs"),
    "no specs": ("{seeds: [1], runs: [{envs: [A-v0]}]}", "runs.0.specs"),
    "a misspelt key": ("{seeds: [1], runs: [{spces: [ppo]}]}", "specs?"),
    "a seed twice": ("{seeds: [3, 4, 3], runs: [{specs: [ppo]}]}", "has 3 twice"),
    "a seed of a row twice": (
        "{seeds: [1], runs: [{specs: [ppo], seeds: [7, 7]}]}",
        "runs.0.seeds",
    ),
    "two names of one file": (
        "{seeds: [1], runs: [{specs: [a], name: x/y}, {specs: [b], name: x_y}]}",
        '"x/y" and "x_y"',
    ),
    "a row twice": ("{seeds: [1], runs: [{specs: [ppo, ppo]}]}", '"ppo" twice'),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_problem_of_the_file_is_named(what, tmp_path):
    text, word = WRONG[what]
    with pytest.raises(SpecError) as error:
        suite(tmp_path, text)
    assert word in str(error.value)
    assert "mine.yaml" in str(error.value)


def test_an_unknown_suite_is_answered_with_the_nearest_name():
    with pytest.raises(UsageError, match="did you mean gate"):
        read_suite("gaet")
    with pytest.raises(UsageError, match=r"shipped are .*gate"):
        read_suite("nothing_like_it")


@pytest.mark.parametrize("name", shipped_suites())
def test_every_shipped_suite_can_be_read(name):
    assert read_suite(name).rows
