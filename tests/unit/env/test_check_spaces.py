"""Whether agent and environment fit, found out by `spec check`."""

import gymnasium
import pytest

from slm_lab.env import check_spaces
from slm_lab.env.check_spaces import cheap_space_problems
from slm_lab.spec.load import load_spec


def problems(file, **env):
    spec = load_spec(file, None, [f"env.{key}={value}" for key, value in env.items()])
    return [str(problem) for problem in cheap_space_problems(spec.agent, spec.env)]


@pytest.mark.parametrize("name", ["Pendulum-v1", "MountainCarContinuous-v0", "HalfCheetah-v5"])
def test_q_learning_is_refused_where_actions_are_continuous(name):
    problem = "agent.algorithm.name = 'DQN': DQN cannot act in a box action space"
    assert problems("dqn_cartpole", name=name) == [problem]
    assert problems("ppo_cartpole", name=name) == []


def test_a_distribution_of_continuous_actions_is_refused_where_they_are_a_choice():
    sets = ["agent.algorithm.action_pdtype=Normal"]
    for name in ("CartPole-v1", "ALE/Pong-v5"):
        spec = load_spec("ppo_cartpole", None, [*sets, f"env.name={name}"])
        (problem,) = cheap_space_problems(spec.agent, spec.env)
        assert str(problem).startswith("agent.algorithm.action_pdtype = 'Normal': does not fit a ")


def test_a_net_that_cannot_see_the_observations_is_refused():
    spec = load_spec("a2c_gae_cartpole", None, overrides={
        "agent.net": {"type": "ConvNet", "conv_hid_layers": [[4, 3]]}
    })  # fmt: skip
    (problem,) = cheap_space_problems(spec.agent, spec.env)
    assert problem.path == "agent.net.type"


def test_environment_arguments_affect_the_checked_spaces():
    pytest.importorskip("Box2D")
    assert problems("dqn_lunar") == []
    (problem,) = problems("dqn_lunar", continuous="true")
    assert "cannot act in a box action space" in problem


@pytest.mark.parametrize(
    ("name", "made"), [("CartPole-v1", True), ("HalfCheetah-v5", False), ("FrozenLake-v1", False)]
)
def test_only_what_is_cheap_is_made(name, made, monkeypatch):
    asked = []
    monkeypatch.setattr(
        check_spaces, "_problems_with_spaces", lambda agent, spec: asked.append(spec.name) or []
    )
    assert problems("ppo_cartpole", name=name) == []
    assert asked == ([name] if made else [])


def test_an_environment_of_another_package_is_not_made(monkeypatch):
    def construct(**kwargs):
        raise AssertionError("it was made")

    monkeypatch.setitem(
        gymnasium.registry,
        "Foreign-v0",
        gymnasium.envs.registration.EnvSpec("Foreign-v0", entry_point=construct),
    )
    assert problems("dqn_cartpole", name="Foreign-v0") == []
