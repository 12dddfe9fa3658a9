"""What random actions give, and what may keep an agent from learning."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as Entry

from slm_lab.core.errors import LabError
from slm_lab.recipes import env_facts as facts
from slm_lab.recipes.env_facts import (
    RandomPlay,
    env_facts,
    obstacles_to_learning,
)
from slm_lab.spec.schema.env import EnvSpec
from tests.unit.recipes.toy_envs import ENVS, Toy


def test_random_play_counts_whole_episodes_and_raw_rewards():
    found = env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))
    assert set(found.play.returns) == {10.0}
    assert set(found.play.lengths) == {10}
    assert found.play.steps == 10 * len(found.play.returns) == 1000
    assert (found.observations, found.actions) == (
        "Box(-1.0, 1.0, (3,), float32)",
        "Discrete(2)",
    )


def test_the_limit_of_the_spec_bounds_the_episodes():
    found = env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1, max_t=4))
    assert set(found.play.lengths) == {4}


def test_an_environment_that_breaks_the_interface_is_refused(monkeypatch):
    monkeypatch.setattr("tests.unit.recipes.toy_envs.Toy.reset", lambda self, **_: 3)
    with pytest.raises(LabError, match=r"reset\(\) must return \(observation, info\)"):
        env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))


def test_an_environment_that_raises_is_one_line_with_the_place(monkeypatch):
    def step(self, action):
        raise KeyError("wind")

    monkeypatch.setattr("tests.unit.recipes.toy_envs.Toy.step", step)
    with pytest.raises(LabError, match=r"raises KeyError: 'wind'.*test_env_facts.py"):
        env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))


HINT = "it tells which actions are allowed: -s env.action_mask="


def test_a_mask_that_nobody_uses_is_pointed_out(monkeypatch):
    def reset(self, *, seed=None, options=None):
        obs, info = original(self, seed=seed, options=options)
        return obs, {**info, "mask": np.ones(1), "action_mask": np.ones(2)}

    original = Toy.reset
    monkeypatch.setattr(Toy, "reset", reset)
    found = env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))
    assert f"{HINT}info.action_mask" in found.notes
    parts = spaces.Dict(x=spaces.Box(-1, 1, (2,)), legal_mask=spaces.MultiBinary(2))
    entry = Entry("Masked-v0", lambda: Toy(parts, spaces.Discrete(2)))
    monkeypatch.setitem(gymnasium.registry, entry.id, entry)
    found = env_facts(EnvSpec(name=entry.id, max_frame=1))
    assert f"{HINT}legal_mask" in found.notes
    monkeypatch.setattr(Toy, "step", lambda self, action: {}["illegal"])
    with pytest.raises(LabError, match=f"raises KeyError.*{HINT}legal_mask"):
        env_facts(EnvSpec(name=entry.id, max_frame=1))


def test_random_actions_differ_although_the_environment_seeds_its_own(monkeypatch):
    actions = []

    def reset(self, *, seed=None, options=None):
        self.action_space.seed(0)
        return original(self, seed=seed, options=options)

    def step(self, action):
        actions.append(int(action))
        return original_step(self, action)

    original, original_step = Toy.reset, Toy.step
    monkeypatch.setattr(Toy, "reset", reset)
    monkeypatch.setattr(Toy, "step", step)
    env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))
    episodes = {tuple(actions[first : first + 10]) for first in range(1, 400, 10)}
    assert len(episodes) > 20


def test_without_an_ended_episode_the_return_so_far_is_kept(monkeypatch):
    monkeypatch.setattr(facts, "FIRST_EPISODE_SECONDS", 0.0)
    found = env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))
    assert (found.play.returns, found.play.unfinished) == ((), found.play.steps * 1.0)


def test_steps_with_numbers_that_are_not_finite_are_reported(monkeypatch):
    def broken(env, action):
        return np.full(3, np.nan, np.float32), 1.0, True, False, {}

    whole = env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))
    assert whole.play.broken == 0
    monkeypatch.setattr(Toy, "step", broken)
    found = env_facts(EnvSpec(name=ENVS["vectors"], max_frame=1))
    assert "100 of 100 steps gave observations or rewards that are not finite" in str(
        found.notes
    )


@pytest.mark.parametrize(
    ("returns", "steps_per_s", "limit", "words"),
    [
        ((1.0, 2.0, 3.0), 1e4, None, None),
        ((2.0, 2.0), 1e4, None, None),
        ((-200.0,) * 3, 1e4, 200, "the same return, -200, in all 3 episodes"),
        ((0.0,) * 50, 1e4, 200, "the same return, 0, in all 50 episodes"),
        ((), 1e4, None, "bound episodes with env.max_t"),
        ((), 1e4, 200, None),
        ((1.0, 2.0), 40, None, "40.0 steps/s are slow"),
        ((1.0, 2.0), 1e4, None, "no step limit and took 2,000 steps"),
        ((1.0, 2.0), 1e4, 3000, None),
    ],
)
def test_obstacles_to_learning(returns, steps_per_s, limit, words):
    length = 2000 if steps_per_s == 1e4 and returns == (1.0, 2.0) else 1
    play = RandomPlay(int(steps_per_s), 1.0, returns, (length,) * len(returns))
    found = list(obstacles_to_learning(play, limit))
    assert len(found) == (words is not None)
    assert words is None or words in found[0]


@pytest.mark.parametrize(
    ("returns", "mean", "std"),
    [((), None, None), ((3.0,), 3.0, None), ((1.0, 5.0), 3.0, 2.0)],
)
def test_random_play_has_a_mean_of_any_episodes_and_a_spread_of_several(
    returns, mean, std
):
    play = RandomPlay(10, 1.0, returns, (4,) * len(returns))
    assert (play.mean_return, play.return_std) == (mean, std)
    assert play.mean_length == (4.0 if returns else None)


def test_the_agents_of_one_copy_are_named_and_count_as_frames():
    facts = env_facts(EnvSpec(name="pettingzoo:tests.team", max_frame=1000))
    assert facts.agents == ("stays", "leaves", "comes_back", "joins")
    assert facts.frames_per_s == 4 * facts.play.steps_per_s
    assert set(facts.play.lengths) == {8}


def test_copies_with_several_agents_are_not_told_to_step_in_processes(monkeypatch):
    monkeypatch.setattr("slm_lab.recipes.env_facts.SLOW", np.inf)
    *_, slow = env_facts(EnvSpec(name="pettingzoo:tests.team", max_frame=1000)).notes
    assert slow.endswith("meta.distributed")
