"""Observations in parts: Dict and Tuple spaces."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from slm_lab.core.errors import LabError, SpecError
from slm_lab.env.convert.image import is_image
from slm_lab.env.convert.observation import ObservationConverter
from slm_lab.env.convert.parts import RowConverter, join_parts
from slm_lab.env.vector.raw import env_seeds

SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
BOXES = st.one_of(
    st.builds(
        spaces.Box,
        st.sampled_from([-np.inf, -1.7, 0.1]),
        st.sampled_from([0.3, np.inf]),
        SHAPES,
        st.just(np.float64),
    ),
    st.builds(spaces.Box, st.just(-2.1), st.just(3.3), SHAPES, st.just(np.float32)),
    st.builds(spaces.Box, st.just(0), st.just(255), SHAPES, st.just(np.uint8)),
    st.builds(
        spaces.Box, st.just(-(2**25) - 1), st.just(2**62), SHAPES, st.just(np.int64)
    ),
)
LEAVES = st.one_of(
    BOXES,
    st.builds(spaces.Discrete, st.integers(1, 5), start=st.integers(-3, 3)),
    st.builds(
        lambda counts, start: spaces.MultiDiscrete(
            counts, start=np.full_like(counts, start)
        ),
        st.sampled_from([np.array([2, 3]), np.array([[1, 2], [4, 3]])]),
        st.integers(-3, 3),
    ),
    st.builds(spaces.MultiBinary, st.sampled_from([3, (2, 2)])),
)


def composite(parts):
    return st.one_of(
        st.dictionaries(st.text("abc", min_size=1), parts, min_size=1, max_size=3).map(
            spaces.Dict
        ),
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
    )


NESTED = composite(st.recursive(LEAVES, composite, max_leaves=4))


class Sampled(gymnasium.Env):
    """Observes samples of any space."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation_space):
        self.observation_space = observation_space

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def is_only_image(space):
    return isinstance(space, spaces.Dict) and [*map(is_image, space.values())] == [True]


@given(NESTED, st.integers(0, 999))
def test_observations_in_parts_are_one_vector_within_their_space(space, seed):
    raw, _ = Sampled(space).reset(seed=seed)
    env = join_parts(Sampled(space), "X")
    obs, _ = env.reset(seed=seed)
    if is_only_image(space):
        assert_array_equal(obs, next(iter(raw.values())))
        assert obs in env.observation_space
        return
    assert obs.dtype == np.float32
    assert obs.shape == (spaces.flatdim(space),)
    assert obs in env.observation_space
    assert_array_equal(obs, spaces.flatten(space, raw).astype(np.float32))


def test_a_dict_of_one_image_is_the_image():
    screen = spaces.Box(0, 255, (8, 9, 3), np.uint8)
    env = join_parts(Sampled(spaces.Dict(screen=screen)), "X")
    assert env.observation_space == screen
    assert env.reset(seed=1)[0].shape == (8, 9, 3)


def test_parts_stand_in_the_order_of_their_keys_one_hot_or_raveled():
    near = [
        spaces.Box(-1.0, 1.0, (2,), np.float64),
        spaces.Box(0, 255, (1, 1, 3), np.uint8),
    ]
    space = spaces.Dict(
        {
            "room": spaces.Discrete(3, start=1),
            "lamps": spaces.MultiBinary((2, 2)),
            "near": spaces.Tuple(near),
            "dials": spaces.MultiDiscrete([2, 2], start=[0, 5]),
        }
    )
    env = join_parts(Sampled(space), "X")
    obs = env.observation(
        {
            "room": 3,
            "lamps": [[1, 0], [0, 1]],
            "near": ([0.5, -0.25], [[[7, 8, 255]]]),
            "dials": np.array([1, 5]),
        }
    )
    dials = [0, 1, 1, 0]
    lamps = [1, 0, 0, 1]
    near = [0.5, -0.25, 7, 8, 255]
    room = [0, 0, 1]
    assert_array_equal(obs, [*dials, *lamps, *near, *room])
    box = env.observation_space
    assert_array_equal(box.low, [0] * 8 + [-1, -1] + [0] * 6)
    assert_array_equal(box.high, [1] * 8 + [1, 1, 255, 255, 255] + [1] * 3)


def test_a_bound_that_is_too_large_for_float32_is_infinite():
    box = spaces.Box(np.array([-1e300, 0.1]), np.array([1.0, 1e300]), dtype=np.float64)
    for seen in (
        join_parts(Sampled(spaces.Tuple([box])), "X").observation_space,
        ObservationConverter(box, "X").space,
    ):
        assert_array_equal(seen.low, np.array([-np.inf, 0.1], np.float32), strict=True)
        assert_array_equal(seen.high, np.array([1.0, np.inf], np.float32), strict=True)


def test_an_environment_whose_observation_has_no_parts_stays_as_it_is():
    env = Sampled(spaces.Box(0.0, 1.0, (2, 2)))
    assert join_parts(env, "X") is env


UNSUPPORTED = {
    "Text": spaces.Text(3),
    "Box": spaces.Box(0, 1, (0,)),
    "Graph": spaces.Graph(spaces.Discrete(2), None),
    "Sequence": spaces.Sequence(spaces.Discrete(2)),
    "OneOf": spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
    "Dict": spaces.Dict(),
    "Tuple": spaces.Tuple([]),
}


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_a_part_that_is_no_vector_is_refused_by_its_path(build, registered, kind, mode):
    deep = spaces.Tuple([spaces.Discrete(2), spaces.Dict(what=UNSUPPORTED[kind])])
    space = spaces.Dict(
        {"mission": UNSUPPORTED[kind], "pose": spaces.Box(0, 1), "inner": deep}
    )
    name = registered("Odd-v0", lambda: Sampled(space))
    with pytest.raises(
        SpecError, match="wrap the environment so that it leaves"
    ) as caught:
        build(name, vectorization_mode=mode)
    deep_problem, problem = caught.value.problems
    assert f'its observation "mission" is a {kind} space' in problem.message
    assert f'its observation "inner.1.what" is a {kind} space' in deep_problem.message
    assert (
        "supported are Box, Discrete, MultiDiscrete and MultiBinary" in problem.message
    )


POSE = spaces.Box(-1.0, 1.0, (2,))
PAIR = spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 4])])
HONEST = {"pose": np.zeros(2), "pair": (3, np.array([1, 3]))}
DISHONEST = {
    "a key more": ({**HONEST, "time": 1}, '"time" is not in it; it has pose, pair'),
    "a key less": ({"pose": np.zeros(2)}, '"pair" is missing; there are pose'),
    "a part more": (
        {**HONEST, "pair": (1, [0, 0], 0)},
        '"pair" has the length 3, its space 2',
    ),
    "a part less": ({**HONEST, "pair": (1,)}, '"pair" has the length 1, its space 2'),
    "another shape": (
        {**HONEST, "pose": np.zeros(3)},
        r'"pose" has the shape (3,), its space (2,)',
    ),
    "too large a number": (
        {**HONEST, "pair": (4, [0, 0])},
        '"pair.0" is 4, which is not in Disc',
    ),
    "too small a number": (
        {**HONEST, "pair": (0, [0, 0])},
        '"pair.0" is 0, which is not in Disc',
    ),
    "half a number": (
        {**HONEST, "pair": (1.5, [0, 0])},
        '"pair.0" is 1.5, which is not in Disc',
    ),
    "one of several": (
        {**HONEST, "pair": (1, [0, -1])},
        '"pair.1" is [0, -1], which is not in Mul',
    ),
    "no number": ({**HONEST, "pose": None}, '"pose" is None, no number'),
    "lists of two lengths": ({**HONEST, "pose": [[1], [1, 2]]}, '"pose" is no array'),
    "no tuple": ({**HONEST, "pair": 1}, '"pair" is of the type int, its space a Tuple'),
    "no dict": (
        np.zeros(3),
        "the observation is of the type ndarray, its space a Dict",
    ),
}


class Dishonest(Sampled):
    """What it observes after its reset is `seen`."""

    def __init__(self, seen):
        super().__init__(spaces.Dict(pose=POSE, pair=PAIR))
        self.seen = seen

    def step(self, action):
        return self.seen, 0.0, False, False, {}


@pytest.mark.parametrize("what", DISHONEST)
def test_an_observation_outside_its_space_is_reported_with_environment_and_key(what):
    seen, message = DISHONEST[what]
    env = join_parts(Dishonest(seen), "Bad-v0")
    env.reset(seed=0)
    with pytest.raises(
        LabError, match=r"^Bad-v0 breaks its own observation space: "
    ) as caught:
        env.step(0)
    assert message in str(caught.value)
    assert "fix the environment" in str(caught.value)


@pytest.mark.parametrize(
    "seen",
    [
        HONEST,
        {"pair": [np.array(3), [1, 3]], "pose": [0.0, 0.0]},
        {
            "pair": (np.array([3]), np.array([[1, 3]])),
            "pose": np.zeros((2, 1), np.float64),
        },
        {"pair": (np.uint8(3), (1, 3)), "pose": (0, 0)},
    ],
)
def test_an_equal_value_of_another_type_is_accepted(seen):
    env = join_parts(Dishonest(seen), "Fine-v0")
    flat = spaces.flatten(spaces.Dict(pose=POSE, pair=PAIR), HONEST)
    assert_array_equal(env.step(0)[0], flat.astype(np.float32))


def test_a_number_beyond_the_bounds_of_a_box_is_taken():
    """Environments are careless there, and a network takes any number."""
    env = join_parts(
        Dishonest({**HONEST, "pose": np.array([1.5, -7.0])}), "Careless-v0"
    )
    assert env.step(0)[0][:2].tolist() == [1.5, -7.0]


class Walk(gymnasium.Env):
    """Counts its steps in one part of the observation and draws the other; ends after
    five."""

    observation_space = spaces.Dict(
        walk=spaces.Tuple(
            [spaces.Discrete(6), spaces.Box(-9.0, 9.0, (2,), np.float64)]
        ),
        goal=spaces.MultiBinary(2),
    )
    action_space = spaces.MultiDiscrete(
        [[2, 3], [2, 2]], dtype=np.int32, start=[[0, 1], [0, 5]]
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.place = 0, self.np_random.normal(size=2)
        return self._obs(), {}

    def step(self, action):
        assert action in self.action_space, action
        self.count += 1
        self.place = self.place + 0.1 * action[0] + 0.1 * self.np_random.normal(size=2)
        return self._obs(), float(action[1, 0]), self.count == 5, False, {}

    def _obs(self):
        return {
            "walk": (self.count, self.place),
            "goal": np.array([self.count % 2, 1], np.int8),
        }


@pytest.fixture
def walk(registered):
    return registered("Walk-v0", Walk)


@pytest.fixture
def draws():
    """`count` batches of actions as an agent draws them."""

    def draw(env, count, seed=0):
        batch = gymnasium.vector.utils.batch_space(env.action_space, env.num_envs)
        batch.seed(seed)
        return [np.asarray(batch.sample()) for _ in range(count)]

    return draw


def test_the_vector_is_that_of_plain_environments_also_where_an_episode_ends(
    build, walk, draws
):
    env = build(walk, 3)
    plain = [Walk() for _ in range(env.num_envs)]
    seen = env.reset()
    for i, seed in enumerate(env_seeds(3, env.num_envs)):
        raw, _ = plain[i].reset(seed=seed)
        flat = spaces.flatten(Walk.observation_space, raw)
        assert_array_equal(seen[i], flat.astype(np.float32))
    ends = 0
    for action in draws(env, 23):
        step = env.step(action)
        for i, single in enumerate(plain):
            own_action = (action[i].reshape(2, 2) + Walk.action_space.start).astype(
                np.int32
            )
            raw, reward, done, _, _ = single.step(own_action)
            assert (step.reward[i], step.terminated[i]) == (reward, done)
            flat = spaces.flatten(Walk.observation_space, raw)
            assert_array_equal(step.next_obs[i], flat.astype(np.float32))
            if done:
                ends += 1
                flat = spaces.flatten(Walk.observation_space, single.reset()[0])
            assert_array_equal(step.obs[i], flat.astype(np.float32))
            assert step.obs[i] in env.observation_space
    assert ends == 4 * env.num_envs


class NativeWalk(SyncVectorEnv):
    """A native vector environment with parts that resets in the same step."""

    def __init__(self, num_envs, autoreset_mode, max_episode_steps=None):
        super().__init__(
            [Walk] * num_envs, autoreset_mode=AutoresetMode(autoreset_mode)
        )


@pytest.mark.parametrize("keys", [{}, {"vectorization_mode": "native"}])
def test_the_parts_of_a_native_environment_are_rows(build, registered, draws, keys):
    name = registered("Native-v0", Walk, vector_entry_point=NativeWalk)
    env = build(name, **keys)
    assert type(env.raw).__name__ == "SameStepEnvs"
    assert env.reset().shape == (3, 10)
    assert env.step(draws(env, 1)[0]).next_obs.dtype == np.float32


SCENE = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (20, 16, 3), np.uint8),
        "depth": spaces.Box(0, 60000, (4,), np.uint16),
        "pose": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
        "room": spaces.Discrete(5, start=2),
        "lamps": spaces.MultiBinary(3),
    }
)


def scene(seed):
    SCENE.seed(seed)
    return SCENE.sample()


def test_an_observation_with_an_image_is_a_row_of_bytes_with_every_part_in_it():
    converter = RowConverter(SCENE, "X")
    observed = scene(seed=3)
    row = converter.row(observed)
    layout = converter.layout
    assert row.dtype == np.uint8
    assert row in converter.row_space
    numbers = {part.name: layout.view(row[None], part)[0] for part in layout.parts}
    assert_array_equal(numbers["camera"], np.moveaxis(observed["camera"], -1, 0))
    assert_array_equal(numbers["depth"], observed["depth"], strict=True)
    assert_array_equal(numbers["pose"], observed["pose"].ravel().astype(np.float32))
    assert_array_equal(numbers["room"], [observed["room"] - 2])
    assert_array_equal(numbers["lamps"], observed["lamps"])


def test_a_row_of_bytes_is_no_longer_than_the_parts_as_the_environment_gives_them():
    observed = scene(seed=0)
    raw_bytes = sum(np.asarray(part).nbytes for part in observed.values())
    assert RowConverter(SCENE, "X").row(observed).nbytes <= raw_bytes


def test_a_batch_of_parts_is_the_rows_of_each():
    converter = RowConverter(SCENE, "X")
    scenes = [scene(seed) for seed in range(4)]
    parts = {key: np.stack([each[key] for each in scenes]) for key in SCENE}
    rows = converter.rows(parts, count=4)
    assert_array_equal(rows, np.stack([converter.row(each) for each in scenes]))


def test_a_part_that_is_missing_in_a_batch_is_zeros():
    converter = RowConverter(SCENE, "X")
    whole = {key: np.asarray(part)[None] for key, part in scene(seed=1).items()}
    without = {key: part for key, part in whole.items() if key != "camera"}
    rows = converter.rows(without, count=1)
    for part in converter.layout.parts:
        expected = converter.layout.view(converter.rows(whole, count=1), part)
        if part.name == "camera":
            expected = np.zeros_like(expected)
        assert_array_equal(converter.layout.view(rows, part), expected)


def test_many_values_of_an_index_are_one_number_in_the_row():
    space = spaces.Dict(word=spaces.Discrete(1000), pose=POSE)
    converter = RowConverter(space, "X")
    assert converter.layout.shape == (12,)
    row = converter.row({"word": 999, "pose": [0.5, -0.5]})
    assert converter.layout.view(row[None], converter.layout.part("word"))[0] == 999


def test_images_in_rows_are_resized_and_their_channels_come_first():
    space = spaces.Dict(camera=spaces.Box(0, 255, (40, 30, 3), np.uint8), pose=POSE)
    converter = RowConverter(space, "X", image_size=(15, 20))
    assert converter.layout.part("camera").shape == (3, 20, 15)
    white = {"camera": np.full((40, 30, 3), 255), "pose": [0, 0]}
    image = converter.layout.view(
        converter.row(white)[None], converter.layout.part("camera")
    )
    assert (image == 255).all()


def test_statistics_of_a_row_are_of_its_floats_alone(build, registered):
    name = registered("Scene-v0", lambda: Sampled(SCENE))
    env = build(name, num_envs=3, normalize_obs=True)
    env.reset()
    assert env.layout.num_floats == 4
    assert env.statistics.shape == (1 + 2 * 4,)
    for part in env.layout.parts:
        before = env.layout.view(env.raw_obs, part)
        after = env.layout.view(env.obs, part)
        expected = before
        if part.dtype == np.float32:
            deviation = np.sqrt(before.var(0) + 1e-8)
            expected = (before - before.mean(0)) / deviation
        assert_allclose(after, expected, rtol=1e-4, atol=1e-4)


TWO_BOXES = spaces.Dict(
    arm=spaces.Box(-9, 9, (2,), np.float32),
    speed=spaces.Box(0, 400, (3,), np.float32),
    gear=spaces.Discrete(3),
)


@pytest.mark.parametrize("frames", [{}, {"frame_op": "stack", "frame_op_len": 2}])
@pytest.mark.parametrize(
    ("space", "names"), [(TWO_BOXES, ["speed"]), (SCENE, ["pose"])]
)
def test_the_parts_in_a_list_are_normalised_and_all_others_stay_as_they_are(
    build, registered, space, names, frames
):
    name = registered("Scene-v0", lambda: Sampled(space))
    env = build(name, num_envs=5, normalize_obs=names, **frames)
    env.reset()
    env.step(np.zeros(5, np.int64))
    layout = env.layout

    def newest(obs):
        return obs.reshape(5, -1, layout.row_size)[:, -1]

    for part in layout.parts:
        before = layout.view(newest(env.raw_obs), part)
        after = layout.view(newest(env.obs), part)
        if part.name in names:
            assert env.statistics.shape == (1 + 2 * before[0].size,)
            count, mean, m2 = np.split(env.statistics, [1, 1 + before[0].size])
            expected = (before - mean) / np.sqrt(m2 / count + 1e-8)
            assert count == 10
            assert_allclose(after, expected, rtol=1e-5, atol=1e-5)
        else:
            assert_array_equal(after, before)
    again = env.normalization.obs(env.raw_obs)
    assert_array_equal(newest(again), newest(env.obs))


def test_a_list_of_all_floats_normalises_as_true_does(build, registered):
    name = registered("Scene-v0", lambda: Sampled(SCENE))
    listed = build(name, num_envs=3, normalize_obs=["pose"])
    every = build(name, num_envs=3, normalize_obs=True)
    listed.reset()
    every.reset()
    assert_array_equal(listed.obs, every.obs)
    assert_array_equal(listed.statistics, every.statistics)


def test_an_observation_without_parts_is_a_part_itself(build):
    listed = build("CartPole-v1", normalize_obs=["obs"])
    every = build("CartPole-v1", normalize_obs=True)
    assert_array_equal(listed.reset(), every.reset())


@pytest.mark.parametrize(
    ("space", "name", "message"),
    [
        (SCENE, "pos", "the observation has no such part; it has "),
        (SCENE, "camera", "has numbers of type uint8, which stay as they are"),
        (SCENE, "room", "is an index, which stays as it is; remove it"),
        (TWO_BOXES, "gear", "is an index, which stays as it is; remove it"),
        (POSE, "pose", 'the observation has no parts; its own name is "obs"'),
    ],
)
def test_a_part_that_cannot_be_normalised_is_refused_by_name(
    build, registered, space, name, message
):
    env_name = registered("Scene-v0", lambda: Sampled(space))
    with pytest.raises(SpecError) as caught:
        build(env_name, normalize_obs=[name])
    (problem,) = caught.value.problems
    assert (problem.path, problem.value) == ("env.normalize_obs.0", name)
    assert problem.message.startswith(message)


def test_joined_rows_are_the_last_rows_one_after_another(build, registered):
    name = registered("Scene-v0", lambda: Sampled(SCENE))
    env = build(name, num_envs=1, frame_op="stack", frame_op_len=3)
    first = env.reset().reshape(3, env.layout.row_size)
    assert_array_equal(first, first[-1:].repeat(3, 0))
    second = env.step(np.zeros(1, np.int64)).obs.reshape(first.shape)
    assert_array_equal(second[:2], first[1:])
    assert (second[2] != first[2]).any()


TWO_NAMES = spaces.Dict({"a.b": POSE, "a": spaces.Dict(b=POSE)})
HUGE = spaces.Dict(word=spaces.Discrete(2**40), pose=POSE)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (TWO_NAMES, 'two parts of its observations are called "a.b"; rename one'),
        (HUGE, 'its observation "word" has more than 2,147,483,647 values'),
    ],
)
def test_parts_that_no_row_can_hold_are_refused_by_name(space, message):
    with pytest.raises(SpecError, match=message):
        join_parts(Sampled(space), "X")
