import json
import os
import sys
import textwrap
import threading
import time

import gymnasium
import numpy as np
import pytest

from bench.random_returns import environments
from slm_lab.core.errors import LabError
from slm_lab.core.observation import FLOAT32, ObservationLayout
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.parallel.fork_server import CONTEXT, start
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.studies import baseline
from slm_lab.studies.baseline import (
    EPISODES,
    LEARNER_ONLY,
    SHIPPED,
    RandomBaseline,
    RandomReturn,
    cached_random_return,
    environment_key,
    known_random_return,
    measure_main,
    measure_random_return,
    measured_key,
    shipped_random_return,
)
from tests.learning.probe_envs import register_probes
from tests.support import parse, ppo


def env_spec(**changes):
    changes = {"num_envs": 10, **changes}
    return parse(ppo(**{f"env__{key}": value for key, value in changes.items()})).env


def mean_return(spec, *limits):
    return measure_random_return(spec, *limits).mean


def cached(cache, spec):
    return cached_random_return(cache, measured_key(spec))


class Countdown:
    """Environment i ends every i + 1 steps with a return of 10 i."""

    action_space = gymnasium.spaces.Discrete(2)
    layout = ObservationLayout((1,), FLOAT32)

    begun = None
    num_agents = 1

    def __init__(self, num_envs):
        self.num_envs, self.t, self.closed = num_envs, 0, False
        self.obs = np.zeros((num_envs, 1), np.float32)

    def reset(self):
        return self.obs

    def step(self, action):
        assert action.shape == (self.num_envs,)
        self.t += 1
        ended = np.array([i for i in range(self.num_envs) if self.t % (i + 1) == 0])
        self.finished = FinishedEpisodes(
            ended, ended * 10.0, ended + 1, np.empty((len(ended), 0))
        )
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


def test_the_random_agent_obeys_a_mask():
    """The environment raises an error for an action that it does not allow."""
    register_probes()
    masked = env_spec(name="ProbeTakeAllowed-v0", action_mask="info.action_mask")
    assert mean_return(masked, 400) == pytest.approx(0, abs=0.25)


def test_the_random_return_of_cartpole_is_what_is_known_of_it():
    assert mean_return(env_spec(), 1000) == pytest.approx(22.2, abs=2)


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
    assert mean_return(env_spec(**changes)) == mean_return(env_spec())


def test_a_step_limit_bounds_the_random_return():
    assert measure_random_return(env_spec(max_t=5))[:3] == (5.0, 100, 5.0)


@pytest.mark.parametrize(
    ("asked", "episodes", "num_envs"),
    [(10, 1, 1), (10, 7, 7), (10, 10, 10), (10, 30, 10), (2, 100, 2), (32, 100, 10)],
)
def test_every_environment_contributes_equally_whatever_the_length_of_its_episodes(
    countdown, asked, episodes, num_envs
):
    mean = mean_return(env_spec(num_envs=asked), episodes)
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
    monkeypatch.setattr(baseline, "kill_descendants", lambda: None)

    def measure(cache, spec, value, episodes=EPISODES, seconds=10.0):
        measured = RandomReturn(value, episodes)
        monkeypatch.setattr(baseline, "measure_random_return", lambda *_: measured)
        measure_main(cache, measured_key(spec), spec, (), seconds, os.getppid())

    return measure


def test_a_spawned_process_measures_and_leaves_the_number_in_the_cache(tmp_path):
    cache, spec = tmp_path / "random_returns.json", env_spec(max_t=5)
    task = cache, measured_key(spec), spec, (), 60.0, os.getpid()
    process = CONTEXT.Process(target=measure_main, args=task)
    start(process)
    process.join(60)
    assert process.exitcode == 0
    assert cached(cache, spec)[:3] == (5.0, 100, 5.0)
    seen = [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert seen == [cache.name]


OTHERS = [{"name": "CartPole-v0"}, {"max_t": 100}, {"sutton_barto_reward": True}]
ALIKE = [{"num_envs": 32}, {"max_frame": 10}, {"normalize_obs": True}]


@pytest.mark.parametrize("changes", [*OTHERS, *ALIKE], ids=str)
def test_only_keys_that_change_the_number_make_another_entry(
    tmp_path, measure_here, changes
):
    cache = tmp_path / "random_returns.json"
    measure_here(cache, env_spec(), 22.5)
    hit = 22.5 if changes in ALIKE else None
    assert cached(cache, env_spec(**changes)).mean == hit
    measure_here(cache, env_spec(name="Acrobot-v1"), -499)
    assert cached(cache, env_spec()).mean == 22.5, "side by side"


def test_another_version_of_the_simulator_is_not_a_hit(
    tmp_path, measure_here, monkeypatch
):
    cache = tmp_path / "random_returns.json"
    measure_here(cache, env_spec(), 22.5)
    monkeypatch.setattr(baseline, "installed", lambda package: "99.0")
    assert cached(cache, env_spec()).mean is None


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"\xff\xfe", b"[]", b"null", b"3", b'{"a": "b"}'),
        *(b'{"KEY": "22.5"}', b'{"KEY": null}', b'{"KEY": [22.5]}', b'{"KEY": 22.5}'),
        *(b'{"KEY": {}}', b'{"KEY": {"return": "22.5"}}'),
    ],
    ids=repr,
)
def test_a_damaged_cache_is_no_hit_and_is_replaced_by_the_next_measurement(
    tmp_path, measure_here, content
):
    cache = tmp_path / "random_returns.json"
    key = json.dumps(measured_key(env_spec())).encode()
    cache.write_bytes(content.replace(b'"KEY"', key))
    assert cached(cache, env_spec()) == RandomReturn(None)
    measure_here(cache, env_spec(), 22.5)
    assert cached(cache, env_spec()).mean == 22.5


@pytest.mark.parametrize("plugin", [(), ("nowhere",)])
def test_a_measurement_that_fails_is_one_line_that_names_the_reason(
    tmp_path, measure_here, monkeypatch, capfd, plugin
):
    def crash(*_):
        raise RuntimeError("boom")

    measure_here(tmp_path / "other.json", env_spec(), 1.0)  # sets the scene
    monkeypatch.setattr(baseline, "measure_random_return", crash)
    cache, spec = tmp_path / "random_returns.json", env_spec()
    measure_main(cache, measured_key(spec), spec, plugin, 5.0, os.getppid())
    (line,) = capfd.readouterr().err.splitlines()
    reason = "--import nowhere" if plugin else "CartPole-v1 failed: RuntimeError: boom"
    assert line.startswith(f"no return of the Random agent: {reason}")
    if not plugin:
        assert cached(cache, spec) == RandomReturn(None, why=reason, seconds=5.0)


def test_a_known_environment_is_not_measured(tmp_path):
    """Its number comes with the lab, also where another was measured in the folder."""
    cache = tmp_path / "random_returns.json"
    known = known_random_return(cache, env_spec())
    assert known == shipped_random_return(env_spec())
    assert known.mean > 15
    assert known.episodes == 100
    assert not cache.exists()


@pytest.mark.medium
@pytest.mark.parametrize("name", ["CartPole-v1", "MountainCarContinuous-v0"])
def test_shipped_random_returns_equal_measured_ones(name):
    spec = env_spec(name=name)
    assert shipped_random_return(spec).mean == pytest.approx(
        mean_return(spec), rel=0.25
    )


@pytest.mark.parametrize(
    "changes",
    [{"max_t": 100}, {"sutton_barto_reward": True}, {"backend": "envpool"}],
    ids=str,
)
def test_an_environment_with_changed_returns_has_no_shipped_number(
    tmp_path, measure_here, changes
):
    spec = EnvSpec.model_validate({"name": "CartPole-v1", "max_frame": 1, **changes})
    cache = tmp_path / "random_returns.json"
    assert shipped_random_return(spec) is None
    assert known_random_return(cache, spec).mean is None
    measure_here(cache, spec, 5.0)
    assert known_random_return(cache, spec).mean == 5.0


@pytest.mark.parametrize(("found", "known"), [("1.99.0", True), ("2.0.0", False)])
def test_another_major_version_of_the_simulator_has_no_shipped_number(
    monkeypatch, found, known
):
    monkeypatch.setattr(baseline, "installed", lambda package: found)
    assert (shipped_random_return(env_spec()) is not None) is known


@pytest.mark.medium
def test_every_environment_that_a_shipped_spec_names_and_gymnasium_has_has_a_number():
    for spec in environments():
        if not any(family in spec.name for family in ("Bullet", "MiniGrid")):
            assert environment_key(spec, LEARNER_ONLY) in json.loads(
                SHIPPED.read_text()
            ), spec.name


def test_how_a_game_looks_to_the_learner_does_not_change_its_number():
    spec = EnvSpec(name="ALE/Pong-v5", max_frame=1)
    lives = spec.model_copy(update={"life_loss_info": True})
    assert environment_key(spec) != environment_key(lives)
    assert environment_key(spec, LEARNER_ONLY) == environment_key(lives, LEARNER_ONLY)


OWN = """
import gymnasium
from bonus import BONUS
class Own(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 1, (1,))
gymnasium.registry.pop("Own-v0", None)
gymnasium.register("Own-v0", Own, kwargs={"limit": 1})
"""

WRAPPER = "import gymnasium\nclass Plain(gymnasium.Wrapper): pass\n"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """`own(file, text)` rewrites a file of an environment of the user's, and imports
    all again; returns the key."""
    monkeypatch.syspath_prepend(tmp_path)

    def rewrite(name, text):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        for module in ("own_env", "bonus", "own_wrapper"):
            sys.modules.pop(module, None)
        wrapped = env_spec(name="own_env:Own-v0", wrappers=["own_wrapper:Plain"])
        return measured_key(wrapped)

    (tmp_path / "own_wrapper.py").write_text(WRAPPER)
    (tmp_path / "bonus.py").write_text("BONUS = 1")
    rewrite("own_env", OWN)
    yield rewrite
    gymnasium.registry.pop("Own-v0", None)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("own_env", f"{OWN}\nREWARD = 2"),
        ("bonus", "BONUS = 2"),
        ("own_wrapper", f"{WRAPPER}# edited"),
        ("own_env", OWN.replace('"limit": 1', '"limit": 2')),
        ("own_env", OWN.replace("Own, kwargs", "Own, max_episode_steps=9, kwargs")),
    ],
    ids=[
        "its file",
        "a module that it imports",
        "a wrapper",
        "an argument of register",
        "a registered limit",
    ],
)
def test_a_number_is_not_reused_after_an_edit_of_what_the_environment_depends_on(
    own, file, text
):
    before = own("own_env", OWN)
    assert own("own_env", OWN) == before
    assert own(file, text) != before


def test_other_code_under_a_shipped_name_has_no_shipped_number(own, monkeypatch):
    entry = gymnasium.registry["Own-v0"]
    monkeypatch.setitem(gymnasium.registry, "CartPole-v1", entry)
    assert shipped_random_return(env_spec()) is None


@pytest.fixture
def slow(countdown, monkeypatch):
    """`slow(seconds)`: each step of the environments takes so many seconds."""
    now = [0.0]
    monkeypatch.setattr(baseline.time, "monotonic", lambda: now[0])
    step = Countdown.step

    def make(seconds):
        def slow_step(self, action):
            now[0] += seconds
            return step(self, action)

        monkeypatch.setattr(Countdown, "step", slow_step)
        return now

    return make


def test_a_deadline_ends_the_measurement_after_the_same_number_of_episodes_in_each_copy(
    slow,
):
    """Copy 0 has shorter episodes than copy 1: both count alike."""
    now = slow(0.1)
    measured = measure_random_return(env_spec(num_envs=2), 100, seconds=5.0)
    assert now[0] <= 5.0
    assert measured.mean == 5.0
    # twelve rounds in the first half, and the one that ran
    assert measured.episodes == 26


def test_too_few_episodes_are_no_number_but_a_reason(slow):
    slow(25.0)
    with pytest.raises(
        LabError, match=r"2 episodes .* ended in 51 s, and 5 are needed"
    ):
        measure_random_return(env_spec(num_envs=2), 100, seconds=51.0)


@pytest.mark.parametrize(
    ("episodes", "seconds", "again"),
    [(100, 1e9, False), (40, 19, False), (40, 20, True)],
)
@pytest.mark.parametrize("mean", [3.0, None])
def test_an_incomplete_number_and_a_failure_are_tried_again_only_with_twice_the_time(
    tmp_path, measure_here, mean, episodes, seconds, again
):
    cache, spec = tmp_path / "random_returns.json", env_spec()
    episodes = episodes if mean is not None or episodes == 100 else 0
    measure_here(cache, spec, mean, episodes, seconds=10.0)
    measure_here(cache, spec, 4.0, EPISODES, seconds=seconds)
    assert cached(cache, spec).mean == (4.0 if again else mean)


def test_a_worse_measurement_does_not_replace_a_better_one(tmp_path, measure_here):
    cache, spec = tmp_path / "random_returns.json", env_spec()
    measure_here(cache, spec, 3.0, 40, seconds=10.0)
    measure_here(cache, spec, None, 0, seconds=30.0)
    assert cached(cache, spec)[:2] == (3.0, 40)
    assert cached(cache, spec).seconds == 30.0


def start_measuring(cache, name):
    spec = env_spec(name=name, max_t=5)
    process = CONTEXT.Process(target=_hold, args=(cache, measured_key(spec)))
    start(process)
    return process


def _hold(cache, key):
    """Measures without end."""
    with baseline._lock_file(cache) as lock:
        baseline.fcntl.lockf(lock, baseline.fcntl.LOCK_EX, 1, baseline._place(key))
        cache.with_name("held").touch()
        threading.Event().wait()


def test_a_run_waits_for_the_measurement_of_no_other_environment(
    tmp_path, measure_here
):
    cache = tmp_path / "random_returns.json"
    other = start_measuring(cache, "Acrobot-v1")
    try:
        began = time.monotonic()
        while not (tmp_path / "held").exists() and time.monotonic() < began + 30:
            time.sleep(0.01)
        measure_here(cache, env_spec(max_t=5), 5.0)
        assert cached(cache, env_spec(max_t=5)).mean == 5.0
        place = baseline._place(measured_key(env_spec(name="Acrobot-v1", max_t=5)))
        at_once = baseline.fcntl.LOCK_EX | baseline.fcntl.LOCK_NB
        with baseline._lock_file(cache) as lock, pytest.raises(BlockingIOError):
            baseline.fcntl.lockf(lock, at_once, 1, place)
    finally:
        other.kill()
        other.join()


def test_a_user_who_stops_the_measurement_waits_no_longer(tmp_path, monkeypatch):
    spec = env_spec(max_t=5)
    monkeypatch.setattr(baseline, "measure_main", _sleep)
    known = RandomBaseline(tmp_path / "random_returns.json", spec, ()).measured(
        500.0, lambda: False
    )
    assert known == RandomReturn(None)


def _sleep(*_):
    threading.Event().wait()


def test_a_step_that_never_returns_is_ended_and_remembered(tmp_path, monkeypatch):
    spec, cache = env_spec(max_t=5), tmp_path / "random_returns.json"
    monkeypatch.setattr(baseline, "measure_main", _sleep)
    monkeypatch.setattr(baseline, "START_SECONDS", 0.0)
    known = RandomBaseline(cache, spec, ()).measured(0.5, lambda: True)
    assert known.mean is None
    assert "did not end within" in known.why
    assert cached(cache, spec).is_enough(0.9)


def test_a_measurement_of_edited_code_does_not_count_for_the_code_before(
    tmp_path, measure_here, capfd
):
    cache, spec = tmp_path / "random_returns.json", env_spec(max_t=5)
    measure_main(cache, "the key before the edit", spec, (), 5.0, os.getppid())
    assert "has changed since the training began" in capfd.readouterr().err
    assert not cache.exists()


def test_an_environment_that_is_unknown_here_has_no_number_and_is_not_measured(
    tmp_path,
):
    spec = EnvSpec(name="Nowhere-v0", max_frame=1)
    unknown = RandomBaseline(tmp_path / "random_returns.json", spec, ())
    assert unknown.measured(500.0, lambda: True).mean is None
    assert "there is no such environment" in unknown.known.why


def test_the_random_agent_is_measured_over_the_episodes_of_all_agents():
    spec = EnvSpec(name="pettingzoo:tests.team", num_envs=3, max_frame=100)
    measured = measure_random_return(spec, episodes=20)
    assert measured.episodes == 20
    assert measured.episode_length == (8 + 3 + 2 + 2 + 6) / 5
    assert abs(measured.mean) < 1.0
