"""Invalid values of `env` are reported before any trial begins."""

import pytest

from slm_lab.core.errors import MissingExtraError
from slm_lab.studies.search import run as module
from slm_lab.studies.search.run import env_problems
from slm_lab.studies.search.space import Space
from tests.unit.studies.search.small import searched

NAME = "env.name__choice"
GRAVITY = "env.g__choice"
SCALED = {"name": "tests.unit.env.wrapped:Scaled", "factor": 2.0}


def problems_of(search, **changes):
    spec = searched(search, **changes)
    return [str(problem) for problem in env_problems(Space(spec), spec)]


@pytest.mark.parametrize("sampler", ["choice", "grid_search"])
def test_an_unknown_environment_is_reported_with_the_nearest(sampler):
    key = f"env.name__{sampler}"
    (problem,) = problems_of({key: ["CartPole-v1", "CartPol-v1"]})
    assert problem.startswith(
        f"search.{key} = 'CartPol-v1': there is no such environment; did you mean "
        "CartPole-v1?"
    )


def test_environments_that_there_are_may_be_searched():
    assert (
        problems_of(
            {NAME: ["CartPole-v1", "Pendulum-v1"], "env.num_envs__choice": [1, 4]}
        )
        == []
    )


def test_the_wrappers_that_a_search_may_set_are_checked_too():
    key = "env.wrappers__choice"
    (problem,) = problems_of(
        {key: [[], ["gymnasium.wrappers:ClipAction"], ["gymnasium.wrappers:Clip"]]}
    )
    assert problem.startswith(
        f"search.{key} = ['gymnasium.wrappers:Clip']: env.wrappers.0: "
    )
    assert (
        problems_of({"env.wrappers.0.factor__uniform": [1, 2]}, env__wrappers=[SCALED])
        == []
    )
    (problem,) = problems_of(
        {"env.wrappers.0.fctor__uniform": [1, 2]}, env__wrappers=[SCALED]
    )
    assert "did you mean factor?" in problem


def test_a_missing_package_is_reported_with_what_to_install(monkeypatch):
    def missing(spec):
        if spec.name == "Acrobot-v1":
            raise MissingExtraError("run: pip install x")

    monkeypatch.setattr(module, "find_env", missing)
    assert problems_of({NAME: ["CartPole-v1", "Acrobot-v1"]}) == [
        f"search.{NAME} = 'Acrobot-v1': run: pip install x"
    ]


@pytest.mark.parametrize(
    ("key", "args", "value"),
    [("env.gravty__uniform", [1.0, 2.0], 1.0), ("env.gravty__choice", [3, 3], 3)],
)
def test_an_argument_that_the_environment_does_not_take_is_reported(key, args, value):
    problem, *_ = problems_of({key: args})
    assert problem.startswith(f"search.{key} = {value}: CartPole-v1 does not accept it")


def test_a_value_valid_with_some_other_value_is_left_to_the_trials():
    assert (
        problems_of({NAME: ["CartPole-v1", "Pendulum-v1"], GRAVITY: [9.8, 10.0]}) == []
    )
    native = {"env.vectorization_mode__choice": ["native", "sync"]}
    assert problems_of({**native, NAME: ["Pendulum-v1", "CartPole-v1"]}) == []


@pytest.mark.medium
@pytest.mark.parametrize(
    "names", [["CartPole-v1", "CartPole-v99"], ["CartPole-v99", "CartPole-v1"]]
)
def test_each_key_is_reported_for_its_own_values_only(names):
    found = problems_of(
        {NAME: names, "env.num_envs__choice": [1, 2], "env.gravty__choice": [1]}
    )
    assert [problem.split(":")[0] for problem in found] == [
        f"search.{NAME} = 'CartPole-v99'",
        "search.env.gravty__choice = 1",
    ]


def test_a_whole_block_may_be_a_value():
    block = {"name": "CartPole-v1", "max_frame": 100}
    (problem,) = problems_of({"env__choice": [block, {**block, "gravty": 1}]})
    assert "env.gravty: CartPole-v1 does not accept it" in problem


def test_combinations_beyond_the_limit_are_left_to_the_trials(monkeypatch):
    search = {"env.gravty__choice": [1], "env.num_envs__choice": [1, 2, 4]}
    assert problems_of(search)
    monkeypatch.setattr(module, "AT_MOST", 2)
    assert problems_of(search) == []
