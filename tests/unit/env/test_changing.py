"""Arguments of environments that change by the trial's clock."""

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from slm_lab.core.errors import LabError
from slm_lab.env.make import make_env
from slm_lab.spec.schema.env import EnvSpec

FALLING = {
    "name": "linear_decay",
    "start_val": 10.0,
    "end_val": 2.0,
    "end_step": 100,
}


class Level(gymnasium.Env):
    """Shows its level and a random number, in episodes of three steps."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self, level: float = 1.0, width: int = 2, floor=0, is_hard: bool = False
    ):
        if level < 0:
            raise ValueError("no level below 0")
        self.observation_space = gymnasium.spaces.Box(
            -np.inf, max(level, 1.0), (width,), np.float32
        )
        self.level = level
        self.floor = floor

    def _obs(self):
        obs = np.zeros(self.observation_space.shape, np.float32)
        obs[0] = self.level + 100 * self.floor
        obs[1] = self.np_random.random()
        return obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), {}

    def step(self, action):
        self.count += 1
        return self._obs(), 1.0, self.count == 3, False, {}


@pytest.fixture
def level(registered):
    return registered("Level-v0", Level)


def observations(env, frames):
    """The observations of the first copy after steps at these frames."""
    shown = []
    for frame in frames:
        env.set_frame(frame)
        shown.append(env.step(np.zeros(env.num_envs, np.int64)).obs[0].copy())
    return np.stack(shown)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_each_copy_takes_the_value_of_its_reset(mode, build, level):
    env = build(level, level=FALLING, vectorization_mode=mode)
    assert env.reset()[:, 0].tolist() == [10.0] * 3
    # the third step ends an episode; the first one to begin at a later frame changes
    levels = observations(env, [10, 20, 25, 30, 50, 75, 99])[:, 0]
    assert levels.tolist() == [10, 10, 8, 8, 8, 4, 4]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_same_seed_repeats_all_random_numbers(mode, build, level):
    frames = range(0, 60, 3)
    first, again, other = (
        build(level, seed, level=FALLING, vectorization_mode=mode) for seed in (1, 1, 2)
    )
    for env in (first, again, other):
        env.reset()
    expected = observations(first, frames)
    assert_array_equal(observations(again, frames), expected)
    assert not np.array_equal(observations(other, frames), expected)
    assert len(set(expected[:, 1].tolist())) == len(frames)


def test_an_episode_that_begins_at_the_same_value_keeps_its_environment(build, level):
    """So a run is the same until the schedule begins."""
    late = {**FALLING, "start_step": 1000, "end_step": 2000}
    plain, changing = (
        build(level, level=value, vectorization_mode="sync") for value in (10.0, late)
    )
    for env in (plain, changing):
        env.reset()
    assert_array_equal(
        observations(changing, range(30)), observations(plain, range(30))
    )


@pytest.mark.parametrize(
    "constant", [{"start_val": 3.0}, {**FALLING, "start_val": 3.0, "end_val": 3.0}]
)
def test_a_constant_schedule_is_the_number(constant, build, level):
    plain, scheduled = (build(level, level=value) for value in (3.0, constant))
    for env in (plain, scheduled):
        env.reset()
    frames = range(0, 90, 3)
    assert_array_equal(observations(scheduled, frames), observations(plain, frames))


@pytest.mark.parametrize(
    ("key", "schedule", "numbers"),
    [
        ("floor", {**FALLING, "start_val": 1, "end_val": 4}, [1, 2, 2, 4]),
        ("floor", {**FALLING, "start_val": 0.5, "end_val": 2.5}, [0.5, 1, 1.5, 2.5]),
        ("level", {**FALLING, "start_val": 1, "end_val": 4}, [1, 1.75, 2.5, 4]),
    ],
)
def test_whole_numbers_stay_whole_where_the_environment_asks_for_them(
    key, schedule, numbers, build, level
):
    """By the annotation, or without one by the default and both ends."""
    env = build(level, **{key: schedule, "vectorization_mode": "sync"})
    shown = []
    for frame in (0, 25, 50, 100):
        env.set_frame(frame)
        shown.append(env.reset()[0, 0])
    if key == "floor":
        numbers = [100 * number + 1 for number in numbers]
    assert shown == pytest.approx(numbers)


def test_a_saved_episode_goes_on_with_the_value_that_it_began_with(
    build, random_actions
):
    """Pendulum's `g`: the saved and the restored environment swing alike, across the
    next resets too."""
    schedule = {**FALLING, "end_val": 1.0}
    keys = {"g": schedule, "max_t": 7}
    env = build("Pendulum-v1", 0, **keys)
    env.set_frame(30)
    env.reset()
    actions = random_actions(env, 40)
    for action in actions[:4]:
        env.step(action)
    state = env.state_dict()
    restored = build("Pendulum-v1", 5, **keys)
    assert restored.load_state_dict(state)
    for frame, action in enumerate(actions[4:], start=40):
        rows = []
        for other in (env, restored):
            other.set_frame(frame)
            step = other.step(action)
            rows.append((step.obs, step.reward, step.next_obs))
        for one, two in zip(*rows, strict=True):
            assert_array_equal(one, two)


def test_copies_that_are_not_saved_exactly_begin_at_the_value_of_now(build, level):
    env = build(level, level=FALLING, vectorization_mode="sync")
    env.reset()
    observations(env, [10, 20])
    restored, twin = (
        build(level, seed, level=FALLING, vectorization_mode="sync") for seed in (7, 8)
    )
    for other in (restored, twin):
        other.set_frame(50)
        assert not other.load_state_dict(env.state_dict())
    assert restored.obs[:, 0].tolist() == [6.0] * 3
    assert_array_equal(restored.obs, twin.obs)


def test_a_value_that_the_environment_does_not_take_is_found_before_the_start(
    env_spec, level
):
    spec = env_spec(level, level={**FALLING, "end_val": -1.0})
    with pytest.raises(LabError, match=r"Level-v0 cannot be made with .*-1\.0.*below"):
        make_env(spec, 0)


def test_a_count_that_shapes_observations_cannot_change(env_spec, level):
    spec = env_spec(level, width={**FALLING, "start_val": 2, "end_val": 4})
    with pytest.raises(LabError, match=r"'width': 4.*another observation_space"):
        make_env(spec, 0)


def test_what_cannot_change_is_refused_by_name(assert_refused, level):
    assert_refused(
        level,
        "env.is_hard = …: takes no numbers, so it cannot change while an agent "
        "trains; write a value",
        is_hard=FALLING,
    )
    assert_refused(
        level,
        "env.width.end_val = 2.5: must be a whole number",
        width={**FALLING, "end_val": 2.5},
    )
    assert_refused(
        level,
        "env.levle = …: Level-v0 does not accept it; did you mean level?",
        levle=FALLING,
    )
    assert_refused(
        "ALE/Pong-v5",
        "env.difficulty: an argument of an Atari game cannot change while an agent "
        "trains; write a number",
        difficulty={**FALLING, "start_val": 0, "end_val": 1},
        vectorization_mode="sync",
    )


@pytest.mark.parametrize(
    "keys", [{"backend": "envpool"}, {"vectorization_mode": "native"}]
)
def test_native_and_pooled_copies_cannot_change(keys, env_spec):
    with pytest.raises(ValueError, match="cannot be used with a schedule of g"):
        env_spec("Pendulum-v1", g=FALLING, **keys)


def test_a_schedule_with_a_fault_names_its_key(env_spec):
    late = {**FALLING, "start_step": 200}
    with pytest.raises(ValueError, match=r"must be <= end_step"):
        env_spec("Pendulum-v1", g=late)
    with pytest.raises(ValueError, match=r"linear_decay needs it"):
        env_spec("Pendulum-v1", kwargs={"g": {**FALLING, "end_val": None}})


def test_an_environment_at_a_frame_stays_as_it_is_there(level, env_spec):
    spec = env_spec(level, level=FALLING, floor={"start_val": 2}).at_frame(50)
    assert spec.changing_argument is None
    env = make_env(spec, 0)
    env.set_frame(100)
    assert env.reset()[:, 0].tolist() == [206.0] * 3
    env.close()


def test_arguments_are_those_of_the_start():
    spec = EnvSpec(name="Level-v0", max_frame=10, level=FALLING, width=3)
    assert spec.arguments == {"level": 10.0, "width": 3}
