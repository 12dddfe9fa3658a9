import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from slm_lab.core.errors import LabError, SpecError
from slm_lab.core.masks import draw_allowed, mask_columns
from slm_lab.env.convert.mask import MaskError, MaskReader
from slm_lab.env.convert.nested import name_of_part, parts_of
from slm_lab.studies.requirements import check_spaces
from tests.learning.probe_envs import TakeAllowed, TakeAllowedPair, register_probes
from tests.support import parse, ppo

register_probes()

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
IN_INFO = {"name": "ProbeTakeAllowed-v0", "action_mask": "info.action_mask"}
AS_PART = {"name": "ProbeTakeAllowedPair-v0", "action_mask": "allowed"}


def reader(action_space, place="info.mask", observation_space=BOX):
    return MaskReader(place, observation_space, action_space, "Env-v0")


def allowed_in(env, rows):
    """The mask in rows of observations."""
    return rows[:, mask_columns(env.layout)]


@pytest.mark.parametrize(
    "mask",
    [
        [1, 0, 1],
        np.array([True, False, True]),
        np.array([1.0, 0.0, 1.0]),
        np.array([[1], [0], [1]]),
    ],
)
def test_a_mask_may_have_any_type_of_numbers(mask):
    assert_array_equal(reader(spaces.Discrete(3)).read(mask), [1, 0, 1])


PAIR = spaces.MultiDiscrete([2, 3])


@pytest.mark.parametrize(
    "mask",
    [
        [0, 1, 1, 0, 1],
        ([0, 1], [1, 0, 1]),
        [np.array([0, 1]), np.array([1, 0, 1])],
        {"first": [0, 1], "second": [1, 0, 1]},
    ],
)
def test_the_mask_of_several_choices_is_one_array_or_one_for_each(mask):
    assert_array_equal(reader(PAIR).read(mask), [0, 1, 1, 0, 1])


FAULTS = {
    "another length": ([1, 1], "has the shape (2,), and actions have 5 values"),
    "no array": ([[1], [1, 1]], "is no array"),
    "other numbers": ([2, 1, 1, 1, 1], "it may have 0 and 1 alone"),
    "no numbers": (list("abcde"), "it may have 0 and 1 alone"),
    "nothing allowed": ([0, 0, 1, 1, 1], "allows no action of component 0"),
    "nothing allowed in the last": ([1, 1, 0, 0, 0], "no action of component 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mask_that_is_none_is_refused_by_name(fault):
    mask, message = FAULTS[fault]
    with pytest.raises(LabError) as caught:
        reader(PAIR).read(mask)
    start = 'env.action_mask = "info.mask": the mask of Env-v0 '
    assert str(caught.value).startswith(start)
    assert message in str(caught.value)


def test_masks_are_for_choices():
    with pytest.raises(SpecError, match="masks are for Discrete and MultiDiscrete"):
        reader(BOX)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (BOX, 'the observation has no part "allowed"; it has no parts'),
        (spaces.Dict(a=BOX, b=BOX), 'has no part "allowed"; it has a, b'),
    ],
)
def test_a_part_that_does_not_exist_is_no_mask(space, message):
    with pytest.raises(SpecError, match=message):
        reader(spaces.Discrete(3), "allowed", space)


SCENE = spaces.Dict(
    {
        "camera": BOX,
        "rules": spaces.Tuple(
            [BOX, spaces.Dict({"a.b": spaces.MultiBinary(2), "c": BOX})]
        ),
    }
)


def test_a_mask_at_any_depth_has_the_name_of_its_part():
    masks = reader(spaces.Discrete(2), "rules.1.a.b", SCENE)
    numbers = np.zeros(3, np.float32)
    mask = np.array([0, 1], np.int8)
    obs = {"camera": numbers, "rules": (numbers, {"a.b": mask, "c": numbers})}
    assert masks.find(obs, {}, "step") is mask
    assert masks.parts(obs) == {
        "camera": numbers,
        "rules": {"0": numbers, "1": {"c": numbers}},
    }
    names = [name_of_part(path) for path, _ in parts_of(masks.space)]
    assert names == ["action_mask", "camera", "rules.0", "rules.1.c"]


def test_a_dict_that_had_the_mask_alone_goes_with_it():
    space = spaces.Tuple([BOX, spaces.Dict(mask=spaces.MultiBinary(2))])
    masks = reader(spaces.Discrete(2), "1.mask", space)
    numbers = np.zeros(3, np.float32)
    assert [*masks.others] == ["0"]
    assert masks.parts((numbers, {"mask": [0, 1]})) == {"0": numbers}


def test_the_masks_of_components_may_be_a_part_with_parts():
    inner = spaces.Dict(x=spaces.MultiBinary(2), y=spaces.MultiBinary(3))
    space = spaces.Dict(rules=spaces.Dict(masks=inner, clock=BOX))
    masks = reader(PAIR, "rules.masks", space)
    numbers = np.zeros(3, np.float32)
    obs = {"rules": {"masks": {"x": [1, 0], "y": [0, 1, 1]}, "clock": numbers}}
    value = masks.find(obs, {}, "step")
    assert_array_equal(masks.read(value), [1, 0, 0, 1, 1])
    assert masks.parts(obs) == {"rules": {"clock": numbers}}


def test_dots_lead_into_the_blocks_of_an_info():
    assert reader(PAIR, "info.a.b").find(None, {"a": {"b": 3}}, "step") == 3
    assert reader(PAIR, "info.a.b").find(None, {"a.b": 4, "a": {"b": 3}}, "step") == 4


@pytest.mark.parametrize(
    ("sizes", "shape", "expected"),
    [
        ([2, 3], (2, 3), (6,)),
        ([2, 3], (5,), (2, 3)),
        ([10, 10], (10, 10), (100,)),
        ([5] * 10, (10, 5), (5,) * 10),
        ([2, 2], (2, 2), (2, 2)),
    ],
)
def test_a_part_as_large_as_all_combinations_is_a_mask_of_these(sizes, shape, expected):
    space = spaces.Dict(mask=spaces.MultiBinary(shape), numbers=BOX)
    masks = reader(spaces.MultiDiscrete(sizes), "mask", space)
    assert masks.sizes == expected
    assert masks.read(np.ones(shape, np.int8)).shape == (sum(expected),)
    batch = np.ones((4, *shape), np.int8)
    assert masks.read_batch(batch, 4).shape == (4, sum(expected))


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("keys", [IN_INFO, AS_PART])
def test_every_state_has_its_own_mask_the_last_of_an_episode_too(build, keys, mode):
    env = build(**keys, num_envs=3, vectorization_mode=mode)
    obs = env.reset()
    generator = np.random.default_rng(0)
    for step in range(1, 9):
        drawn = draw_allowed(env.layout, obs, generator)
        taken = env.step(drawn.reshape(3, *env.action_space.shape))
        allowed = allowed_in(env, taken.next_obs)
        assert (allowed.sum(1) == 0).all() == (step % 4 == 0)
        obs = taken.obs
        assert allowed_in(env, obs).any(1).all()


def test_the_mask_is_a_part_beside_what_the_environment_shows(build):
    env = build(**IN_INFO)
    raw = TakeAllowed()
    seed = int(np.random.SeedSequence(0).generate_state(1, np.uint32)[0]) >> 1
    obs, info = raw.reset(seed=seed)
    row = env.reset()
    assert row.dtype == np.float32
    assert_array_equal(row[0], [*obs, *info["action_mask"]])


def test_a_mask_is_not_normalised(build):
    env = build(**AS_PART, num_envs=4, normalize_obs=True)
    env.reset()
    assert env.statistics.shape == (1 + 2 * 5,)
    assert_array_equal(allowed_in(env, env.obs), allowed_in(env, env.raw_obs))


class Forgetful(TakeAllowed):
    def info(self):
        return {} if self._t else super().info()


class Stuck(TakeAllowedPair):
    def draw(self):
        return {"numbers": np.zeros(5), "allowed": np.array([0, 0, 0, 1, 1])}


@pytest.mark.parametrize(
    ("class_", "place", "message"),
    [
        (Forgetful, "info.action_mask", "the info of step() of %s has no action_mask"),
        (Stuck, "allowed", "allows no action of component 0"),
    ],
)
def test_an_environment_without_its_mask_fails_with_one_line(
    build, class_, place, message
):
    name = f"Probe{class_.__name__}-v0"
    if name not in gymnasium.registry:
        gymnasium.register(name, class_)
    env = build(name, action_mask=place)

    def play():
        env.reset()
        env.step(draw_allowed(env.layout, env.obs, np.random.default_rng(0))[:, 0])

    with pytest.raises(LabError) as caught:
        play()
    text = str(caught.value)
    assert (message % name if "%" in message else message) in text
    assert "\n" not in text


def test_draws_are_uniform_among_the_allowed_values(build):
    env = build(**AS_PART)
    row = env.reset().copy()
    row[:, mask_columns(env.layout)] = [1, 0, 1, 0, 1]
    drawn = draw_allowed(env.layout, row.repeat(4000, 0), np.random.default_rng(seed=5))
    assert set(drawn[:, 1].tolist()) == {1}
    counts = np.bincount(drawn[:, 0], minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] / len(drawn) - 0.5) < 0.02


SPACES = {
    "one choice": spaces.Discrete(3, start=2),
    "several": spaces.MultiDiscrete([3, 2]),
    "two axes": spaces.MultiDiscrete([[3, 2], [2, 4]]),
    "mixed": spaces.Dict(
        kick=spaces.Discrete(3),
        aim=spaces.Box(-1.0, 1.0, (2,)),
        inner=spaces.Tuple([spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2)]),
    ),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_a_sample_is_any_action_that_the_mask_allows(space):
    space.seed(0)
    of_env = reader(space)
    rng = np.random.default_rng(0)
    for _ in range(50):
        mask = rng.integers(0, 2, of_env.num_values)
        for part in np.split(mask, np.cumsum(of_env.sizes)[:-1]):
            part[rng.integers(len(part))] = 1
        action = of_env.sample(of_env.read(mask))
        assert action in space
        chosen = [
            np.asarray(value).ravel() - np.asarray(getattr(part, "start", 0)).ravel()
            for path, part in parts_of(space)
            for value in [part_of(action, path)]
            if isinstance(part, spaces.Discrete | spaces.MultiDiscrete)
        ]
        starts = np.cumsum(of_env.sizes) - of_env.sizes
        assert mask[starts + np.concatenate(chosen)].all()


def part_of(action, path):
    """The part of an action at a path."""
    for key in path:
        action = action[int(key) if isinstance(action, tuple) else key]
    return action


def test_a_sample_of_combinations_is_one_that_is_allowed():
    space = spaces.MultiDiscrete([3, 4])
    seen = spaces.Dict(board=BOX, allowed=spaces.MultiBinary((3, 4)))
    of_env = reader(space, "allowed", seen)
    mask = np.zeros((3, 4), np.int8)
    mask[2, 1] = mask[0, 3] = 1
    drawn = {tuple(of_env.sample(of_env.read(mask)).tolist()) for _ in range(30)}
    assert drawn == {(2, 1), (0, 3)}


@pytest.mark.parametrize("kind", [object, np.int8])
def test_lists_of_a_batch_may_stand_in_any_part(kind):
    """Gymnasium makes an array of lists, with an object or numbers for each."""
    of_env = reader(SPACES["mixed"])
    lists = [[np.array([1, 0, 1, 1])], [np.array([1, 1, 0, 1])]]
    inner = np.array(lists, np.int8)
    if kind is object:
        inner = np.empty(2, object)
        inner[:] = lists
    batch = {"kick": np.array([[1, 0, 0], [0, 1, 1]]), "inner": inner}
    expected = [[1, 0, 0, 1, 0, 1, 1], [0, 1, 1, 1, 1, 0, 1]]
    assert_array_equal(of_env.read_batch(batch, 2), expected)


def test_a_mask_of_combinations_in_an_info_is_sent_to_the_observation():
    with pytest.raises(LabError, match="combinations must be a part of the observ"):
        reader(spaces.MultiDiscrete([3, 4])).read(np.ones((3, 4)))


def test_a_part_with_the_name_of_a_whole_observation_stays_a_part():
    masks = reader(spaces.Discrete(2), "info.m", spaces.Dict(obs=BOX))
    numbers = np.zeros(3, np.float32)
    assert masks.parts({"obs": numbers}) == {"obs": numbers}


class Narrow(TakeAllowed):
    """Its masks have a value less than it has actions."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed, options=options)
        return obs, {"action_mask": info["action_mask"][:-1]}


class NarrowPart(TakeAllowedPair):
    """The same, with masks in the observation."""

    observation_space = spaces.Dict(
        {
            "numbers": spaces.Box(-1.0, 1.0, (5,), np.float32),
            "allowed": spaces.MultiBinary(4),
        }
    )

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed, options=options)
        return {**obs, "allowed": obs["allowed"][:-1]}, info


WRONG_AT_FIRST = {
    "no such key": (
        *(TakeAllowed, "info.allowed"),
        "the info of reset() of %s has no allowed; it has action_mask",
    ),
    "no such key inside": (
        *(TakeAllowed, "info.action_mask.0"),
        "the info of reset() of %s has no action_mask.0; it has action_mask",
    ),
    "a size of an info": (
        *(Narrow, "info.action_mask"),
        "the mask of %s has the shape (2,), and actions have 3 values",
    ),
    "a size of a part": (
        *(NarrowPart, "allowed"),
        "the mask of %s has the shape (4,), and actions have 5 values",
    ),
}


@pytest.mark.parametrize("what", WRONG_AT_FIRST)
def test_a_wrong_first_mask_is_a_problem_of_the_spec(what):
    class_, place, message = WRONG_AT_FIRST[what]
    name = f"Probe{class_.__name__}-v0"
    if name not in gymnasium.registry:
        gymnasium.register(name, class_)
    spec = parse(ppo(env__name=name, env__action_mask=place))
    with pytest.raises(SpecError) as caught:
        check_spaces("here", spec)
    (problem,) = caught.value.problems
    assert str(problem) == f"env.action_mask = '{place}': {message % name}"


def test_the_error_of_a_mask_crosses_processes():
    error = MaskError("info.mask", "the mask of Env-v0 is no array")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_empty_key_is_refused():
    with pytest.raises(SpecError, match=r"must name a key of the info"):
        reader(spaces.Discrete(2), "info.")


def test_a_second_part_with_the_name_of_the_mask_is_refused():
    space = spaces.Dict(mask=spaces.MultiBinary(2), action_mask=BOX)
    with pytest.raises(SpecError, match='has another part "action_mask"; name that'):
        reader(spaces.Discrete(2), "mask", space)


@pytest.mark.parametrize("frame_op", ["stack", "concat"])
def test_the_mask_of_joined_frames_is_that_of_the_newest(build, frame_op):
    single = build(**AS_PART, num_envs=2)
    joined = build(**AS_PART, num_envs=2, frame_op=frame_op, frame_op_len=3)
    first = allowed_in(single, single.reset())
    assert_array_equal(allowed_in(joined, joined.reset()), first)
    action = draw_allowed(single.layout, single.obs, np.random.default_rng(0))
    action = action.reshape(2, *single.action_space.shape)
    newest = allowed_in(single, single.step(action).obs)
    assert (newest != first).any()
    assert_array_equal(allowed_in(joined, joined.step(action).obs), newest)
