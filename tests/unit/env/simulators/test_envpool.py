"""envpool behind the interface of the lab: the same steps, and clear errors for the
rest."""

import importlib.util
import sys

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from slm_lab.core.errors import MissingExtraError
from slm_lab.env.check import check_env
from slm_lab.env.convert.batch import BatchView
from slm_lab.env.make import describe_spaces
from slm_lab.env.pool_names import is_pooled
from slm_lab.env.simulators.envpool import EnvpoolEnvs
from slm_lab.env.versions import env_record

needs_envpool = pytest.mark.skipif(
    importlib.util.find_spec("envpool") is None,
    reason="the extra envpool is not installed",
)
POOL = {"backend": "envpool"}


class Counters:
    """A pool like those of envpool. Episodes count their steps to `length`.

    A reset is late unless it is requested. Seeds are counted, too.
    """

    observation_space = gymnasium.spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seeds, length=4, lives=()):
        self.seeds = seeds
        self.length = length
        self._lives = lives
        self._count = np.zeros(len(seeds), np.int64)

    def reset(self, index=None):
        index = np.arange(len(self._count)) if index is None else index
        self._count[index] = 0
        return self._count[index, None].astype(np.float32), self._info(index)

    def step(self, action):
        self._count = np.where(self._count >= self.length, 0, self._count + 1)
        reward = (self._count > 0).astype(np.float32)
        obs = self._count[:, None].astype(np.float32)
        over = self._count >= self.length
        return obs, reward, over, np.zeros_like(over), self._info(np.arange(len(over)))

    def _info(self, index):
        return {
            "lives": np.array(
                [self._lives[self._count[i]] for i in index] if self._lives else []
            )
        }


def steps_of(envs, count):
    first = envs.reset()
    return first, [envs.step(np.zeros(envs.num_envs, np.int64)) for _ in range(count)]


def test_every_step_of_a_pool_was_taken_by_an_agent():
    _, steps = steps_of(EnvpoolEnvs(Counters, 2, 0, max_steps=None), 9)
    for t, step in enumerate(steps, start=1):
        ended = t % 4 == 0
        assert step.reward.tolist() == [1.0, 1.0]
        assert step.terminated.all() == ended
        assert step.obs[:, 0].tolist() == [t % 4] * 2
        if ended:
            assert step.ended()[1][:, 0].tolist() == [4.0, 4.0]


class Doors(Counters):
    """`Counters` that tells in its info which action is allowed: that of the parity of
    the count, and none in the last state."""

    def _info(self, index):
        count = self._count[index, None]
        return {"mask": (count % 2 == [[0, 1]]) & (count < self.length)}


def test_every_state_of_a_pool_has_its_own_mask(env_spec):
    spec = env_spec("Doors-v0", action_mask="info.mask", num_envs=2)
    view = BatchView.of(spec, Counters.observation_space, Counters.action_space)
    envs = EnvpoolEnvs(Doors, 2, 0, max_steps=None, view=view)
    first, steps = steps_of(envs, 9)
    columns = slice(1, 3)
    assert first[:, columns].tolist() == [[1, 0]] * 2
    for t, step in enumerate(steps, start=1):
        expected = [[0, 1], [1, 0]][t % 2 == 0]
        assert step.obs[:, columns].tolist() == [expected] * 2
        if t % 4 == 0:
            assert step.final_obs[:, columns].tolist() == [[0, 0]] * 2


def test_a_pool_that_is_cut_where_nothing_is_allowed_has_ended(env_spec):
    class Cut(Doors):
        def step(self, action):
            obs, reward, over, nothing, info = super().step(action)
            return obs, reward, nothing, over, info

    spec = env_spec("Doors-v0", action_mask="info.mask", num_envs=2)
    view = BatchView.of(spec, Counters.observation_space, Counters.action_space)
    envs = EnvpoolEnvs(Cut, 2, 0, max_steps=None, view=view)
    _, steps = steps_of(envs, 4)
    assert steps[3].terminated.all()
    assert not steps[2].terminated.any()


@pytest.mark.parametrize(
    ("max_steps", "terminated"), [(3, False), (4, True), (9, True)]
)
def test_episodes_of_a_pool_can_be_terminated_in_the_step_of_their_limit(
    max_steps, terminated
):
    length = min(max_steps, 4)
    _, steps = steps_of(EnvpoolEnvs(Counters, 1, 0, max_steps), 2 * length)
    for last in (steps[length - 1], steps[-1]):
        assert last.terminated.item() == terminated
        assert last.truncated.item() == (max_steps <= 4)
    assert all(step.done_index is None for t, step in enumerate(steps, 1) if t % length)


@pytest.mark.parametrize("counts", [True, False])
def test_a_lost_life_of_a_pool_ends_nothing_but_the_bootstrap(counts):
    pool = EnvpoolEnvs(
        lambda seeds: Counters(seeds, lives=(3, 3, 2, 2, 0)),
        1,
        0,
        None,
        life_loss=counts,
    )
    _, steps = steps_of(pool, 8)
    done = [t for t, step in enumerate(steps, start=1) if step.terminated.item()]
    assert done == ([2, 4, 6, 8] if counts else [4, 8])
    for t in done:
        assert len(steps[t - 1].ended()[0]) == (t % 4 == 0)
        assert steps[t - 1].obs.item() == t % 4


def test_a_restored_pool_begins_from_new_seeds():
    made = []

    def make(seeds):
        made.append(seeds)
        return Counters(seeds)

    pool = EnvpoolEnvs(make, 3, 5, None)
    steps_of(pool, 2)
    for _ in range(2):
        EnvpoolEnvs(make, 3, 5, None).load_state_dict(pool.state_dict())
    assert made[1] == made[0] == made[3]
    assert made[2] == made[4] != made[0]
    EnvpoolEnvs(make, 2, 5, None)
    assert made[-1] == made[0][:2]


def test_a_pool_refuses_an_invalid_action():
    pool = EnvpoolEnvs(Counters, 2, 0, None)
    pool.reset()
    with pytest.raises(IndexError, match="there are 2 actions") as caught:
        pool.step(np.array([0, 2]))
    assert "environment 1 of 2 (envpool), with action 2" in caught.value.__notes__[0]


def test_without_envpool_one_error_has_the_command(env_spec, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "envpool" else found(name),
    )
    spec = env_spec("CartPole-v1", **POOL)
    assert check_env(spec) == []
    with pytest.raises(MissingExtraError, match=r'pip install "slm-lab\[envpool\]"'):
        describe_spaces(spec)


@pytest.fixture
def half_installed(tmp_path, monkeypatch):
    """Installs an envpool whose import runs a line of code."""

    def install(line):
        (tmp_path / "envpool").mkdir()
        (tmp_path / "envpool" / "__init__.py").write_text(line)
        monkeypatch.syspath_prepend(tmp_path)
        for name in [
            each for each in sys.modules if each.partition(".")[0] == "envpool"
        ]:
            monkeypatch.delitem(sys.modules, name)

    yield install
    sys.modules.pop("envpool", None)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("import os; os.listdir('/no/roms')", r"FileNotFoundError: .* '/no/roms'"),
        ("import no_such_api", "No module named 'no_such_api'"),
    ],
)
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_an_envpool_that_does_not_import_is_blamed_in_one_line(
    env_spec, half_installed, line, why, name
):
    half_installed(line)
    spec = env_spec(name, **POOL)
    assert check_env(spec) == []
    command = r'run: pip install "slm-lab\[envpool\]"$'
    with pytest.raises(
        MissingExtraError, match=rf"^envpool does not import: {why} .*; {command}"
    ):
        describe_spaces(spec)


def test_single_environments_are_gymnasiums_whatever_the_backend(
    build, env_spec, random_actions
):
    keys = {"vectorization_mode": "sync", "kwargs": {"num_threads": 1}}
    assert not is_pooled(env_spec("Pendulum-v1", **POOL, **keys))
    pooled, plain = (
        build("Pendulum-v1", **k) for k in (POOL | keys, keys | {"kwargs": {}})
    )
    assert_array_equal(pooled.reset(), plain.reset())
    for action in random_actions(plain, 5):
        assert_array_equal(pooled.step(action).obs, plain.step(action).obs)


@needs_envpool
@pytest.mark.parametrize("name", ["CartPole-v1", "HalfCheetah-v5"])
def test_every_transition_of_a_pool_obeys_the_physics_of_gymnasium(
    build, random_actions, name
):
    env = build(name, seed=3, max_t=17, **POOL)
    single = gymnasium.make(name).unwrapped
    single.reset()
    obs = env.reset()
    ended = 0
    for action in random_actions(env, 40):
        step = env.step(action)
        for row in range(env.num_envs):
            if name == "CartPole-v1":
                single.state = obs[row].astype(float)
                single.steps_beyond_terminated = None
            else:
                single.set_state(np.r_[0, obs[row, :8]], obs[row, 8:])
            raw = action[row] if name == "CartPole-v1" else np.clip(action[row], -1, 1)
            expected, reward, terminated, _, _ = single.step(raw)
            assert_allclose(step.next_obs[row], expected, rtol=2e-4, atol=2e-4)
            assert_allclose(step.reward[row], reward, atol=2e-4)
            assert step.terminated[row] == terminated
        ended += 0 if step.finished is None else len(step.finished.env_index)
        obs = step.obs
    assert ended >= 2 * env.num_envs


@needs_envpool
def test_a_pool_depends_on_its_seed_and_on_nothing_else(build, random_actions):
    def play(seed, **keys):
        env = build("ALE/Breakout-v5", seed, num_envs=2, **POOL, **keys)
        seen = [env.reset()]
        for action in random_actions(env, 60):
            step = env.step(action)
            seen += [step.obs, step.next_obs, step.reward]
        return seen

    first = play(7, num_threads=1)
    same = play(7, num_threads=2)
    other = play(8)
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@needs_envpool
def test_games_of_a_pool_lose_lives_keep_scores_and_move_on_by_a_frame(build):
    env = build("ALE/Breakout-v5", num_envs=2, life_loss_info=True, max_t=150, **POOL)
    rng = np.random.default_rng(0)
    obs = env.reset()
    scores = np.zeros(2)
    terminated = 0
    for _ in range(400):
        action = np.where(rng.random(2) < 0.2, 1, rng.integers(2, 4, 2))
        step = env.step(action)
        assert_array_equal(step.next_obs[:, :-1], obs[:, 1:])
        assert set(step.reward.tolist()) <= {-1.0, 0.0, 1.0}
        scores += step.reward  # bricks of the lower rows count 1
        over = [] if step.finished is None else step.finished.env_index.tolist()
        continues = [row for row in range(2) if row not in over]
        assert_array_equal(step.next_obs[continues], step.obs[continues])
        terminated += np.count_nonzero(step.terminated[continues])
        for row in over:
            at = over.index(row)
            assert step.finished.episode_length[at] <= 150
            assert step.finished.episode_return[at] >= scores[row]
            scores[row] = 0
        obs = step.obs
    assert terminated > 2


@needs_envpool
@pytest.mark.parametrize(
    ("name", "keys", "paths"),
    [
        (
            "ALE/Pong-v5",
            {"maxpool": False, "noop_max": 0, "render_mode": "human"},
            ["env.maxpool", "env.noop_max", "env.render_mode"],
        ),
        (
            "HalfCheetah-v5",
            {"num_threads": 1, "healthy_reward": 2.0},
            ["env.healthy_reward"],
        ),
        ("HalfCheetah-v5", {"frame_skip": "five"}, ["env.frame_skip"]),
        ("ALE/Pong-v5", {"mode": 77, "difficulty": 9}, ["env.mode", "env.difficulty"]),
        ("CartPole-v1", {"sutton_barto_reward": True}, ["env.sutton_barto_reward"]),
        ("CliffWalking-v1", {}, []),
        ("CartPole-v1", {"vectorization_mode": "native"}, []),
        ("CliffWalking-v1", {"kwargs": {"speed": 1}}, ["env.speed"]),
    ],
)
def test_a_check_names_what_envpool_cannot_do(env_spec, name, keys, paths):
    assert [
        problem.path for problem in check_env(env_spec(name, **POOL, **keys))
    ] == paths


@needs_envpool
def test_an_environment_that_envpool_lacks_is_refused(env_spec, registered):
    (problem,) = check_env(
        env_spec(registered("Own-v0", f"{__name__}:Counters"), **POOL)
    )
    assert (
        str(problem)
        == "env.backend = 'envpool': envpool has no Own-v0; use \"gymnasium\""
    )


@needs_envpool
def test_an_environment_that_envpool_shows_otherwise_is_refused(build):
    with pytest.raises(Exception, match="its observations are Box"):
        build("Blackjack-v1", **POOL)


@needs_envpool
def test_the_run_records_what_steps_its_environments(env_spec):
    kept = [
        env_record(env_spec("CartPole-v1", **keys))["backend"]
        for keys in ({}, POOL, POOL | {"vectorization_mode": "async"})
    ]
    assert kept == ["gymnasium", "envpool", "gymnasium"]
