"""Whether agent and environment fit, found out by `spec check` and by a run before it
starts."""

import pytest

from slm_lab.core.errors import SpecError
from slm_lab.spec.load import load_spec
from slm_lab.studies.requirements import check_spaces


def problems(file, sets=(), **env):
    spec = load_spec(
        file, None, [*sets, *(f"env.{key}={value}" for key, value in env.items())]
    )
    try:
        check_spaces("here", spec)
    except SpecError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    "name", ["Pendulum-v1", "MountainCarContinuous-v0", "HalfCheetah-v5"]
)
def test_q_learning_is_refused_where_actions_are_continuous(name):
    problem = (
        "agent.algorithm.name = 'DQN': DQN cannot act in a box action space; it is for "
        "discrete ones"
    )
    assert problems("dqn_cartpole", name=name) == [problem]
    assert problems("ppo_cartpole", name=name) == []


def test_a_distribution_of_continuous_actions_is_refused_where_they_are_a_choice():
    for name in ("CartPole-v1", "FrozenLake-v1"):
        (problem,) = problems(
            "ppo_cartpole", ["agent.algorithm.action_pdtype=Normal"], name=name
        )
        assert problem.startswith(
            "agent.algorithm.action_pdtype = 'Normal': does not fit a "
        )


def test_environment_arguments_affect_the_checked_spaces():
    pytest.importorskip("Box2D")
    assert problems("dqn_lunar") == []
    (problem,) = problems("dqn_lunar", continuous="true")
    assert "cannot act in a box action space" in problem
