import json
import os

import gymnasium
import numpy as np
import pytest

from bench.random_returns import environments
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.experiment import baseline
from slm_lab.experiment.baseline import (
    LEARNER_ONLY,
    SHIPPED,
    cached_random_return,
    environment_key,
    known_random_return,
    measure_main,
    measure_random_return,
    shipped_random_return,
)
from slm_lab.parallel.fork_server import CONTEXT, start
from slm_lab.spec.schema.env import EnvSpec
from tests.support import parse, ppo


def env_spec(**changes):
    return parse(ppo(**{f"env__{key}": value for key, value in changes.items()})).env


class Countdown:
    """Environment i ends every i + 1 steps with a return of 10 i."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, num_envs):
        self.num_envs, self.t, self.closed = num_envs, 0, False
        self.obs = np.zeros((num_envs, 1), np.float32)

    def reset(self):
        return self.obs

    def step(self, action):
        assert action.shape == (self.num_envs,)
        self.t += 1
        ended = np.array([i for i in range(self.num_envs) if self.t % (i + 1) == 0])
        self.finished = FinishedEpisodes(ended, ended * 10.0, ended + 1, np.empty((len(ended), 0)))
        self.terminated = np.isin(np.arange(self.num_envs), ended)
        self.truncated = np.zeros(self.num_envs, bool)
        return self

    def close(self):
        self.closed = True


@pytest.fixture
def countdown(monkeypatch):
    made = []

    def make_env(spec, seed):
        made.append(Countdown(spec.num_envs))
        return made[-1]

    monkeypatch.setattr("slm_lab.env.make.make_env", make_env)
    return made


def plain_random_returns(episodes):
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=123)
    env.action_space.seed(456)
    returns = []
    for _ in range(episodes):
        env.reset()
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    env.close()
    return np.array(returns)


def test_the_random_return_of_cartpole_is_that_of_plain_environments():
    plain = plain_random_returns(1000)
    error = plain.std() * np.sqrt(1 / 1000 + 1 / 1000)
    measured = measure_random_return(env_spec(), episodes=1000)
    assert measured == pytest.approx(plain.mean(), abs=4 * error)
    assert measured == pytest.approx(22.2, abs=2)


def test_measuring_twice_gives_the_same_number():
    assert measure_random_return(env_spec()) == measure_random_return(env_spec())


@pytest.mark.parametrize(
    "changes",
    [
        {"num_envs": 16},
        {"max_frame": 50},
        {"normalize_obs": True, "normalize_reward": True},
        {"reward_scale": 0.1},
        {"clip_reward": "sign"},
    ],
    ids=str,
)
def test_observation_settings_do_not_change_the_raw_random_return(changes):
    assert measure_random_return(env_spec(**changes)) == measure_random_return(env_spec())


def test_a_step_limit_bounds_the_random_return():
    assert measure_random_return(env_spec(max_t=5)) == 5.0


@pytest.mark.parametrize("episodes", [1, 7, 10, 30, 100])
def test_every_environment_contributes_equally_whatever_the_length_of_its_episodes(
    countdown, episodes
):
    num_envs = min(episodes, 10)
    mean = measure_random_return(env_spec(), episodes)
    assert mean == pytest.approx(np.mean([10.0 * i for i in range(num_envs)]))
    assert countdown[0].num_envs == num_envs


def test_the_environments_are_closed_also_when_a_step_fails(countdown, monkeypatch):
    measure_random_return(env_spec())

    def fail(self, action):
        raise RuntimeError("simulator")

    monkeypatch.setattr(Countdown, "step", fail)
    with pytest.raises(RuntimeError, match="simulator"):
        measure_random_return(env_spec())
    assert [env.closed for env in countdown] == [True, True]


@pytest.fixture
def measure_here(monkeypatch):
    """measure_main in this process, with a number given instead of measured."""
    monkeypatch.setattr(baseline, "die_with_parent", lambda parent: None)
    monkeypatch.setattr(baseline, "ignore_terminal", lambda: None)

    def measure(cache, spec, value):
        monkeypatch.setattr(baseline, "measure_random_return", lambda spec: value)
        measure_main(cache, spec, (), os.getppid())

    return measure


def test_a_spawned_process_measures_and_leaves_the_number_in_the_cache(tmp_path):
    cache, spec = tmp_path / "random_returns.json", env_spec(max_t=5)
    process = CONTEXT.Process(target=measure_main, args=(cache, spec, (), os.getpid()))
    start(process)
    process.join(60)
    assert process.exitcode == 0
    assert cached_random_return(cache, spec) == 5.0
    seen = [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert seen == [cache.name]


def test_measurements_are_cached_side_by_side(tmp_path, measure_here):
    cache = tmp_path / "random_returns.json"
    measure_here(cache, env_spec(), 22.5)
    measure_here(cache, env_spec(name="Acrobot-v1"), -499)
    assert cached_random_return(cache, env_spec()) == 22.5
    assert cached_random_return(cache, env_spec(name="Acrobot-v1")) == -499.0


def test_an_empty_cache_has_no_number(tmp_path):
    assert cached_random_return(tmp_path / "none.json", env_spec()) is None


OTHERS = [{"name": "CartPole-v0"}, {"max_t": 100}, {"sutton_barto_reward": True}]
ALIKE = [{"num_envs": 32}, {"max_frame": 10}, {"normalize_obs": True}]


@pytest.mark.parametrize("changes", [*OTHERS, *ALIKE], ids=str)
def test_only_keys_that_change_the_number_make_another_entry(tmp_path, measure_here, changes):
    cache = tmp_path / "random_returns.json"
    measure_here(cache, env_spec(), 22.5)
    hit = 22.5 if changes in ALIKE else None
    assert cached_random_return(cache, env_spec(**changes)) == hit


def test_another_version_of_the_simulator_is_not_a_hit(tmp_path, measure_here, monkeypatch):
    cache = tmp_path / "random_returns.json"
    measure_here(cache, env_spec(), 22.5)
    monkeypatch.setattr(baseline, "installed", lambda package: "99.0")
    assert cached_random_return(cache, env_spec()) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"3", b'{"a": "b"}'], ids=repr
)
def test_a_damaged_cache_is_no_hit_and_is_replaced_by_the_next_measurement(
    tmp_path, measure_here, content
):
    cache = tmp_path / "random_returns.json"
    cache.write_bytes(content)
    assert cached_random_return(cache, env_spec()) is None
    measure_here(cache, env_spec(), 22.5)
    assert cached_random_return(cache, env_spec()) == 22.5


@pytest.mark.parametrize("value", ["22.5", None, [22.5], {}])
def test_a_cached_value_that_is_no_number_is_no_hit(tmp_path, measure_here, value):
    cache = tmp_path / "random_returns.json"
    measure_here(cache, env_spec(), 22.5)
    key = next(iter(json.loads(cache.read_text())))
    cache.write_text(json.dumps({key: value}))
    assert cached_random_return(cache, env_spec()) is None


@pytest.mark.parametrize("plugin", [(), ("nowhere",)])
def test_a_measurement_that_fails_is_one_line_that_names_the_reason(
    tmp_path, measure_here, monkeypatch, capfd, plugin
):
    def crash(spec):
        raise RuntimeError("boom")

    measure_here(tmp_path / "other.json", env_spec(), 1.0)  # sets the scene
    monkeypatch.setattr(baseline, "measure_random_return", crash)
    measure_main(tmp_path / "random_returns.json", env_spec(), plugin, os.getppid())
    (line,) = capfd.readouterr().err.splitlines()
    reason = "--import nowhere" if plugin else "CartPole-v1 failed: RuntimeError: boom"
    assert line.startswith(f"no return of the Random agent: {reason}")


def test_a_known_environment_is_not_measured(tmp_path):
    """Its number comes with the lab, also where another was measured in the folder."""
    cache = tmp_path / "random_returns.json"
    assert known_random_return(cache, env_spec()) == shipped_random_return(env_spec()) > 15
    assert not cache.exists()


@pytest.mark.medium
@pytest.mark.parametrize("name", ["CartPole-v1", "MountainCarContinuous-v0"])
def test_shipped_random_returns_equal_measured_ones(name):
    spec = env_spec(name=name)
    assert shipped_random_return(spec) == pytest.approx(measure_random_return(spec), rel=0.25)


@pytest.mark.parametrize(
    "changes",
    [{"max_t": 100}, {"sutton_barto_reward": True}, {"backend": "envpool"}, {"name": "X-v0"}],
    ids=str,
)
def test_an_environment_with_changed_returns_has_no_shipped_number(tmp_path, measure_here, changes):
    spec = EnvSpec.model_validate({"name": "CartPole-v1", "max_frame": 1, **changes})
    cache = tmp_path / "random_returns.json"
    assert shipped_random_return(spec) is None
    assert known_random_return(cache, spec) is None
    measure_here(cache, spec, 5.0)
    assert known_random_return(cache, spec) == 5.0


@pytest.mark.parametrize(("found", "known"), [("1.99.0", True), ("2.0.0", False)])
def test_another_major_version_of_the_simulator_has_no_shipped_number(monkeypatch, found, known):
    monkeypatch.setattr(baseline, "installed", lambda package: found)
    assert (shipped_random_return(env_spec()) is not None) is known


def test_every_environment_that_a_shipped_spec_names_and_gymnasium_has_has_a_number():
    for spec in environments():
        if not any(family in spec.name for family in ("Bullet", "MiniGrid")):
            assert environment_key(spec, LEARNER_ONLY) in json.loads(SHIPPED.read_text()), spec.name


def test_how_a_game_looks_to_the_learner_does_not_change_its_number():
    spec = EnvSpec(name="ALE/Pong-v5", max_frame=1)
    lives = spec.model_copy(update={"life_loss_info": True})
    assert environment_key(spec) != environment_key(lives)
    assert environment_key(spec, LEARNER_ONLY) == environment_key(lives, LEARNER_ONLY)
