"""What random actions give, and what may keep an agent from learning."""

import math

import pytest

from slm_lab.core.errors import LabError
from slm_lab.experiment.new.env_facts import RandomPlay, env_facts, obstacles_to_learning
from slm_lab.spec.schema.env import EnvSpec
from tests.unit.experiment.new.toy_envs import ENVS


def test_random_play_counts_whole_episodes_and_raw_rewards():
    found = env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))
    assert set(found.play.returns) == {10.0}
    assert set(found.play.lengths) == {10}
    assert found.play.steps == 10 * len(found.play.returns) == 1000
    assert (found.observations, found.actions) == ("Box(-1.0, 1.0, (3,), float32)", "Discrete(2)")


def test_the_limit_of_the_spec_bounds_the_episodes():
    found = env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1, max_t=4))
    assert set(found.play.lengths) == {4}


def test_an_environment_that_breaks_the_interface_is_refused(monkeypatch):
    monkeypatch.setattr("tests.unit.experiment.new.toy_envs.Toy.reset", lambda self, **_: 3)
    with pytest.raises(LabError, match=r"reset\(\) must return \(observation, info\)"):
        env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))


def test_an_environment_that_raises_is_one_line_with_the_place(monkeypatch):
    def step(self, action):
        raise KeyError("wind")

    monkeypatch.setattr("tests.unit.experiment.new.toy_envs.Toy.step", step)
    with pytest.raises(LabError, match=r"raises KeyError: 'wind'.*test_env_facts.py"):
        env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))


@pytest.mark.parametrize(
    ("returns", "steps_per_s", "limit", "words"),
    [
        ((1.0, 2.0, 3.0), 1e4, None, None),
        ((2.0, 2.0), 1e4, None, None),
        ((-200.0,) * 3, 1e4, 200, "the same return, -200, in all 3 episodes"),
        ((0.0,) * 50, 1e4, 200, "the same return, 0, in all 50 episodes"),
        ((1.0, math.inf), 1e4, None, "a return is not finite"),
        ((), 1e4, None, "bound episodes with env.max_t"),
        ((), 1e4, 200, None),
        ((1.0, 2.0), 40, None, "40.0 steps/s are slow"),
    ],
)
def test_doubts(returns, steps_per_s, limit, words):
    play = RandomPlay(int(steps_per_s), 1.0, returns, (1,) * len(returns))
    found = list(obstacles_to_learning(play, limit))
    assert len(found) == (words is not None)
    assert words is None or words in found[0]
